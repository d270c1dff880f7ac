# Python and pybind11. scikit-build-core points at both; a plain `cmake -S . -B build` asks the interpreter.
find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
set(PYBIND11_FINDPYTHON ON)
if(NOT pybind11_DIR)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m pybind11 --cmakedir
    OUTPUT_VARIABLE pybind11_hint OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND CMAKE_PREFIX_PATH "${pybind11_hint}")
endif()
find_package(pybind11 CONFIG REQUIRED)

if(NOT DEFINED SKBUILD_PROJECT_VERSION)
  file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml" version_line REGEX "^version = ")
  string(REGEX REPLACE "^version = \"(.*)\"$" "\\1" SKBUILD_PROJECT_VERSION "${version_line}")
endif()
