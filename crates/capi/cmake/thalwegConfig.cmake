# find_package(thalweg): thalweg::thalweg is the shared library, thalweg::static the archive and what it needs.
get_filename_component(_thalweg_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET thalweg::thalweg)
  add_library(thalweg::thalweg SHARED IMPORTED)
  set_target_properties(thalweg::thalweg PROPERTIES
    IMPORTED_LOCATION "${_thalweg_prefix}/lib/libthalweg.so.0"
    IMPORTED_SONAME libthalweg.so.0
    INTERFACE_INCLUDE_DIRECTORIES "${_thalweg_prefix}/include")

  add_library(thalweg::static STATIC IMPORTED)
  set_target_properties(thalweg::static PROPERTIES
    IMPORTED_LOCATION "${_thalweg_prefix}/lib/libthalweg.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_thalweg_prefix}/include"
    INTERFACE_LINK_LIBRARIES "gcc_s;m;c")
endif()

unset(_thalweg_prefix)
