# Writes ${out}: a table of kernel sources, and of the headers they include, as strings. For NVRTC, which
# compiles them on machines that have the installed package only. As a script:
#   cmake -Dsrc=<folder src> -Dout=<file.cc> -P DycEmbed.cmake
cmake_minimum_required(VERSION 3.20)

set(embedded base/*.h ops/*.h cuda/abi/*.h cuda/device/*.h cuda/kernels/*)

# Included by CMakeLists.txt: sets `out_file` to the file, made by the build from `embedded`.
function(dyc_embed_kernels out_file)
  set(src "${PROJECT_SOURCE_DIR}/src")
  set(out "${CMAKE_CURRENT_BINARY_DIR}/kernel_sources.cc")
  set(script "${PROJECT_SOURCE_DIR}/cmake/DycEmbed.cmake")
  list(TRANSFORM embedded PREPEND "${src}/" OUTPUT_VARIABLE patterns)
  file(GLOB files CONFIGURE_DEPENDS ${patterns})
  add_custom_command(OUTPUT "${out}" COMMAND ${CMAKE_COMMAND} "-Dsrc=${src}" "-Dout=${out}" -P "${script}"
    DEPENDS ${files} "${script}" VERBATIM)
  set(${out_file} "${out}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  list(TRANSFORM embedded PREPEND "${src}/" OUTPUT_VARIABLE patterns)
  file(GLOB files RELATIVE "${src}" ${patterns})
  file(WRITE "${out}" "#include \"cuda/driver/sources.h\"\n\nnamespace dyc::cuda {\n\nnamespace {\n\nconstexpr KernelSource kSources[] = {\n")
  foreach(name IN LISTS files)
    file(READ "${src}/${name}" text)
    file(APPEND "${out}" "{\"${name}\", R\"dyc_embed(${text})dyc_embed\"},\n")
  endforeach()
  file(APPEND "${out}" "};\n\n}  // namespace\n\nstd::span<const KernelSource> sources() { return kSources; }\n\n}  // namespace dyc::cuda\n")
endif()
