package dev.thalweg.afl;

import java.lang.classfile.ClassFile;
import java.lang.classfile.ClassHierarchyResolver;
import java.lang.classfile.ClassModel;
import java.lang.classfile.CodeBuilder;
import java.lang.classfile.CodeElement;
import java.lang.classfile.CodeModel;
import java.lang.classfile.CodeTransform;
import java.lang.classfile.Label;
import java.lang.classfile.MethodModel;
import java.lang.classfile.instruction.BranchInstruction;
import java.lang.classfile.instruction.ExceptionCatch;
import java.lang.classfile.instruction.LabelTarget;
import java.lang.classfile.instruction.LookupSwitchInstruction;
import java.lang.classfile.instruction.TableSwitchInstruction;
import java.lang.constant.ClassDesc;
import java.lang.constant.ConstantDescs;
import java.lang.constant.MethodTypeDesc;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.nio.charset.StandardCharsets;
import java.security.ProtectionDomain;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.zip.CRC32;

/**
 * The Java agent that counts edges: {@code -javaagent:thalweg.jar=com.example,org.json}.
 *
 * <p>Classes whose names begin with one of the given prefixes get a {@link Coverage#hit} at the start of every method,
 * at every target of a jump, a switch or an exception, and after every conditional jump. A place has the same number in
 * every run.
 */
public final class CoverageAgent {
    private static final ClassDesc COVERAGE = ClassDesc.of("dev.thalweg.afl.Coverage");
    private static final MethodTypeDesc HIT = MethodTypeDesc.of(ConstantDescs.CD_void, ConstantDescs.CD_int);
    private static final String OWN = "dev/thalweg/";

    private CoverageAgent() {}

    /**
     * Registers the transformer. The JVM calls this before {@code main}.
     *
     * @param packages        prefixes of class names, separated by commas
     * @param instrumentation the JVM's instrumentation
     */
    public static void premain(String packages, Instrumentation instrumentation) {
        String[] prefixes = packages == null ? new String[0] : packages.replace('.', '/').split(",");
        if (prefixes.length == 0 || Arrays.stream(prefixes).anyMatch(String::isBlank)) {
            System.err.println("thalweg: name the packages to count: -javaagent:thalweg.jar=com.example,org.json");
            Runtime.getRuntime().halt(2);
        }
        instrumentation.addTransformer(new Transformer(prefixes));
    }

    /** Instruments the classes of given packages. */
    static final class Transformer implements ClassFileTransformer {
        private final String[] prefixes;

        Transformer(String... prefixes) {
            this.prefixes = prefixes.clone();
        }

        @Override
        public byte[] transform(
                ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
            if (name == null || name.startsWith(OWN) || Arrays.stream(prefixes).noneMatch(name::startsWith)) {
                return null;
            }
            try {
                return instrumented(name, bytes, loader);
            } catch (RuntimeException | LinkageError failure) {
                // The JVM ignores the exception silently, so this reports which class is not counted.
                System.err.println("thalweg: " + name.replace('/', '.') + " is not counted: " + failure);
                return null;
            }
        }
    }

    /** Returns the class with counted places. */
    static byte[] instrumented(String name, byte[] bytes, ClassLoader loader) {
        ClassLoader from = loader == null ? ClassLoader.getSystemClassLoader() : loader;
        var file = ClassFile.of(
                ClassFile.ClassHierarchyResolverOption.of(ClassHierarchyResolver.ofResourceParsing(from)
                        .orElse(ClassHierarchyResolver.defaultResolver())));
        ClassModel model = file.parse(bytes);
        return file.transformClass(model, (builder, element) -> {
            if (element instanceof MethodModel method) {
                builder.transformMethod(method, (inside, part) -> {
                    if (part instanceof CodeModel code) {
                        inside.transformCode(code, new Places(name, method, code));
                    } else {
                        inside.with(part);
                    }
                });
            } else {
                builder.with(element);
            }
        });
    }

    /** Inserts a hit at every place of a method. */
    private static final class Places implements CodeTransform {
        private final int first;
        private final Set<Label> targets;
        private int number;

        Places(String className, MethodModel method, CodeModel code) {
            var name = new CRC32();
            String full = className + method.methodName().stringValue() + method.methodType().stringValue();
            name.update(full.getBytes(StandardCharsets.UTF_8));
            first = (int) name.getValue();
            targets = targetsOf(code);
        }

        @Override
        public void atStart(CodeBuilder builder) {
            hit(builder);
        }

        @Override
        public void accept(CodeBuilder builder, CodeElement element) {
            builder.with(element);
            if (element instanceof LabelTarget target && targets.contains(target.label())) {
                hit(builder);
            } else if (element instanceof BranchInstruction branch && isConditional(branch)) {
                hit(builder);
            }
        }

        private void hit(CodeBuilder builder) {
            builder.loadConstant(place()).invokestatic(COVERAGE, "hit", HIT);
        }

        /** Returns the next number of this method, with all bits mixed (the finalizer of MurmurHash3). */
        private int place() {
            int mixed = first + 0x9e3779b9 * ++number;
            mixed = (mixed ^ mixed >>> 16) * 0x85ebca6b;
            mixed = (mixed ^ mixed >>> 13) * 0xc2b2ae35;
            return (mixed ^ mixed >>> 16) & Integer.MAX_VALUE;
        }

        private static boolean isConditional(BranchInstruction branch) {
            return switch (branch.opcode()) {
                case GOTO, GOTO_W -> false;
                default -> true;
            };
        }

        private static Set<Label> targetsOf(CodeModel code) {
            var targets = new HashSet<Label>();
            for (CodeElement element : code) {
                switch (element) {
                    case BranchInstruction branch -> targets.add(branch.target());
                    case ExceptionCatch handler -> targets.add(handler.handler());
                    case LookupSwitchInstruction choice -> {
                        targets.add(choice.defaultTarget());
                        choice.cases().forEach(each -> targets.add(each.target()));
                    }
                    case TableSwitchInstruction choice -> {
                        targets.add(choice.defaultTarget());
                        choice.cases().forEach(each -> targets.add(each.target()));
                    }
                    default -> {}
                }
            }
            return targets;
        }
    }
}
