# OpenBLAS from the scipy-openblas32 wheel of the Python that builds. It is copied under a name of its own
# (cmake/vendor_openblas.py) so that the loader never shares it with NumPy's, SciPy's or the wheel's copy.
# Sets DYC_HAVE_OPENBLAS, DYC_VENDOR_DIR, DYC_VENDORED_FILES and the target dyc_openblas.
set(DYC_HAVE_OPENBLAS OFF)
set(DYC_VENDOR_DIR "${CMAKE_CURRENT_BINARY_DIR}/vendored")

if(NOT DEFINED DYC_OPENBLAS)
  set(DYC_OPENBLAS ON CACHE BOOL "Link OpenBLAS where the build environment has scipy-openblas32")
endif()
if(DYC_OPENBLAS)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/cmake/vendor_openblas.py" "${DYC_VENDOR_DIR}"
    OUTPUT_VARIABLE vendor_output OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_VARIABLE vendor_error ERROR_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE vendor_status)
  if(vendor_status EQUAL 0)
    # Lines: include folder, library, then the other files to install with it.
    string(REPLACE "\n" ";" vendor_lines "${vendor_output}")
    list(POP_FRONT vendor_lines openblas_include openblas_library)
    set(DYC_VENDORED_FILES "${openblas_library}" ${vendor_lines})
    add_library(dyc_openblas_shared SHARED IMPORTED)
    set_target_properties(dyc_openblas_shared PROPERTIES
      IMPORTED_LOCATION "${openblas_library}"
      INTERFACE_INCLUDE_DIRECTORIES "${openblas_include}"
      INTERFACE_COMPILE_DEFINITIONS "DYC_HAVE_OPENBLAS=1")
    add_library(dyc_openblas INTERFACE)
    target_link_libraries(dyc_openblas INTERFACE dyc_openblas_shared)
    set(DYC_HAVE_OPENBLAS ON)
    message(STATUS "OpenBLAS: ${openblas_library}")
  else()
    message(STATUS "OpenBLAS: none (${vendor_error}); building without it")
  endif()
else()
  message(STATUS "OpenBLAS: switched off (DYC_OPENBLAS)")
endif()
