"""Makes the Markdown page of a machine from its JSON file."""

import statistics

RESULTS = {"won": "won", "even": "even", "lost": "**lost**", "too few rounds": "too few rounds"}
FIGURES = (("wall", "time"), ("cpu", "CPU time"))


def page(found: dict) -> str:
    """Returns the page. You may add a condition `remark` to the file, for example if it contains rows of two runs."""
    of = found["conditions"]
    caches = ", ".join(f"{name} {size}" for name, size in of["caches"].items())
    lines = [
        f"# {of['date'][:10]}, {of['cpu']}", "",
        f"`make campaign-speed` wrote this page ([how to read it](README.md#measure-your-machine)). {counted(found)}", "",
        "| condition | value |", "|---|---|",
        f"| processor | {of['cpu']}, family {of['family']}, model {of['model']}, stepping {of['stepping']} |",
        f"| cores, memory | {of['cores']}, {of['memory_bytes'] / 2**30:.0f} GiB |",
        f"| caches | {caches} |",
        f"| extensions | {', '.join(of['flags'])} |",
        f"| Linux | {of['kernel']}, {of['congestion_control']} |",
        f"| load before | {', '.join(map(str, of['load_before']))} |",
        *(f"| {name} | {text[:60].strip()} |" for name, text in of["versions"].items() if text), "",
        *([of["remark"], ""] if "remark" in of else []),
        *losses(found), *sections(found), *earlier(found), *left_out(found),
    ]
    return "\n".join(lines).rstrip() + "\n"


def contests(found: dict, before: bool = False) -> list[tuple[dict, dict]]:
    """Returns the comparisons with other tools, or those with an earlier version of thalweg."""
    return [(row, contest) for row in found["rows"] for contest in row.get("contests", []) if contest.get("before", False) == before]


def counted(found: dict) -> str:
    verdicts = [contest["wall"]["verdict"] for _, contest in contests(found) if contest["wall"]]
    return ", ".join(f"{verdicts.count(name)} {name}" for name in ("won", "even", "lost")) + too_few(verdicts) + " by wall time."


def too_few(verdicts: list[str]) -> str:
    return f", {verdicts.count('too few rounds')} with too few rounds" if "too few rounds" in verdicts else ""


def losses(found: dict) -> list[str]:
    """Lists the lost rows first."""
    lost = [
        f"- {row['section']}, {row['what']}: `{contest['thalweg']}` takes {contest[figure]['ratio']:.2f} times the {word} of `{contest['other']}`."
        for row, contest in contests(found) for figure, word in FIGURES if contest[figure] and contest[figure]["verdict"] == "lost"
    ]
    return ["## Losses", "", *(lost or ["None."]), ""]


def sections(found: dict) -> list[str]:
    lines = []
    for name in dict.fromkeys(row["section"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["section"] == name]
        lines += [f"## {name}", "", *table(contests({"rows": rows})), "", *others(rows), *remarks(rows), ""]
    return lines


def earlier(found: dict) -> list[str]:
    """Makes the table of the earlier version of thalweg, if it was measured."""
    lines = contests(found, before=True)
    return ["## Before and after", "", "The other tool is the earlier version of thalweg, with the same command.", "", *table(lines), ""] if lines else []


def table(lines: list[tuple[dict, dict]]) -> list[str]:
    return ["| work | thalweg | other tool | time | interval | A/A | result | CPU time | interval | A/A | result |",
            "|---|---|---|---:|---|---|---|---:|---|---|---|", *(line(row, contest) for row, contest in lines)]


def line(row: dict, contest: dict) -> str:
    cells = [f"{row['section']}: {row['what']}" if contest.get("before") else row["what"], f"`{contest['thalweg']}`", f"`{contest['other']}`"]
    for figure, _ in FIGURES:
        one = contest[figure]
        cells += [f"{one['ratio']:.2f}", f"{one['low']:.2f} to {one['high']:.2f}", f"{one['again_low']:.2f} to {one['again_high']:.2f}",
                  RESULTS[one["verdict"]]] if one else ["", "", "", ""]
    return f"| {' | '.join(cells)} |"


def remarks(rows: list[dict]) -> list[str]:
    """Returns a line for every row, with the rounds, the processes whose CPU time counts, the verification and the guarantees."""
    lines = []
    for row in rows:
        parts = [f"{row['rounds']} rounds", f"CPU time: {row['cpu']}", f"verified: {row['verified']}", *row["notes"]]
        parts += [f"{one['name']}: {one['guarantee']}" for one in row["variants"] if one["guarantee"]]
        parts += [f"not run: {one['name']} ({one['reason']})" for one in row["not_run"]]
        lines.append(f"- **{row['what']}**: {'; '.join(parts)}.")
    return lines


def others(rows: list[dict]) -> list[str]:
    """Makes a table of the medians of other numbers. `client_cpu` stays in the JSON file."""
    lines = [
        f"| {row['what']} | `{one['name']}` | {name.replace('_', ' ')} | {statistics.median(values):.3g} |"
        for row in rows for one in row["variants"] for name, values in one.get("other", {}).items() if name != "client_cpu"
    ]
    return ["| work | variant | figure | median |", "|---|---|---|---:|", *lines, ""] if lines else []


def left_out(found: dict) -> list[str]:
    lines = [f"- {one['row']}: {one['reason']}" for one in found["not_run"]]
    return ["## Not run", "", *lines] if lines else []
