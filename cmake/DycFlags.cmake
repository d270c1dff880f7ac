# dyc_flags: what every file is compiled with. DYC_BASELINE_FLAGS: the ISA of all that is compiled once.
# DYC_KERNEL_FLAGS: floating point for kernels. Not -ffast-math: NaN and infinity must come out as they are.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(DYC_X86 ON)
else()
  set(DYC_X86 OFF)
endif()

set(DYC_BASELINE_FLAGS)
if(DYC_X86)
  set(DYC_BASELINE_FLAGS -msse4.2 -mpopcnt)  # x86-64-v2
endif()
set(DYC_KERNEL_FLAGS -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast)
if(DYC_SANITIZE)  # unrolled loops full of checks take many minutes to compile
  list(TRANSFORM DYC_KERNEL_FLAGS REPLACE "-O3" "-O1")
endif()

add_library(dyc_flags INTERFACE)
target_include_directories(dyc_flags INTERFACE "${PROJECT_SOURCE_DIR}/src")
target_compile_options(dyc_flags INTERFACE -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports overlapping copies inside std::string's operator+ that are not there.
  target_compile_options(dyc_flags INTERFACE -Wno-restrict)
endif()
if(DYC_WERROR)
  target_compile_options(dyc_flags INTERFACE -Werror)
endif()
if(NOT DYC_X86 OR DYC_BASELINE_ONLY)
  target_compile_definitions(dyc_flags INTERFACE DYC_ISA_ONLY_BASELINE)
endif()

if(DYC_SANITIZE)
  target_compile_options(dyc_flags INTERFACE -fsanitize=${DYC_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(dyc_flags INTERFACE -fsanitize=${DYC_SANITIZE})
  if(DYC_SANITIZE MATCHES "undefined")
    target_compile_options(dyc_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
if(DYC_LTO)
  include(CheckIPOSupported)
  check_ipo_supported()
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()
