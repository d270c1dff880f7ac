# Python and pybind11. scikit-build-core points at both; a plain `cmake -S . -B build` asks the interpreter.
find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
set(PYBIND11_FINDPYTHON ON)
if(NOT pybind11_DIR)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m pybind11 --cmakedir
    OUTPUT_VARIABLE pybind11_hint OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND CMAKE_PREFIX_PATH "${pybind11_hint}")
endif()
find_package(pybind11 CONFIG REQUIRED)

# pip puts pybind11 into a new folder for each build. A copy keeps paths and times, and so the objects made before.
file(GLOB_RECURSE pybind11_files RELATIVE "${pybind11_INCLUDE_DIR}" "${pybind11_INCLUDE_DIR}/pybind11/*.h")
foreach(name IN LISTS pybind11_files)
  configure_file("${pybind11_INCLUDE_DIR}/${name}" "${PROJECT_BINARY_DIR}/include/${name}" COPYONLY)
endforeach()
set_target_properties(pybind11::pybind11_headers PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${PROJECT_BINARY_DIR}/include"
  INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${PROJECT_BINARY_DIR}/include")

if(NOT DEFINED SKBUILD_PROJECT_VERSION)
  file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml" version_line REGEX "^version = ")
  string(REGEX REPLACE "^version = \"(.*)\"$" "\\1" SKBUILD_PROJECT_VERSION "${version_line}")
endif()
