# The real device: nvcc, cuBLAS, Google Benchmark.
enable_language(CUDA)
find_package(CUDAToolkit 12.3 REQUIRED)
find_package(benchmark REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

if(NOT LADDER_ARCHS)
  execute_process(
    COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed OR NOT found MATCHES "^[0-9]")
    set(found "7.5\n8.0\n9.0")
  endif()
  string(REPLACE "." "" found "${found}")
  string(REGEX MATCHALL "[0-9]+" found "${found}")
  list(REMOVE_DUPLICATES found)
  set(LADDER_ARCHS "${found}" CACHE STRING "" FORCE)
endif()
message(STATUS "Building for compute capability ${LADDER_ARCHS}")

set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_ARCHITECTURES OFF)  # named by -gencode below: CMake 3.22 does not know 90a
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
# What ptxas says is kept, and a spill or a serialised wgmma fails the build.
set(CMAKE_CUDA_COMPILER_LAUNCHER "${Python3_EXECUTABLE};${PROJECT_SOURCE_DIR}/tools/ptxas_guard.py")

# archs_of(LINE VARIABLE): which of LADDER_ARCHS a step with `// arch: LINE` is built for.
function(archs_of line variable)
  set(archs "")
  string(REGEX MATCH "[0-9]+" least "${line}")
  foreach(arch IN LISTS LADDER_ARCHS)
    if((line MATCHES "\\+$" AND arch GREATER_EQUAL least)
       OR (line MATCHES "a$" AND arch EQUAL least))
      list(APPEND archs ${arch})
    endif()
  endforeach()
  set(${variable} ${archs} PARENT_SCOPE)
endfunction()

# gencode(TARGET ARCHS...): machine code for these alone; 90 means 90a, where wgmma exists.
function(gencode target)
  foreach(arch IN LISTS ARGN)
    string(REGEX REPLACE "^90$" "90a" arch ${arch})
    target_compile_options(
      ${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_${arch},code=sm_${arch}>")
  endforeach()
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xptxas -v -lineinfo -Xcompiler=-Wall>")
endfunction()

# gpu/: what asks CUDA and has no kernel, which g++ compiles in a third of the time.
file(GLOB harness_sources CONFIGURE_DEPENDS common/harness/*.cpp common/harness/*.cu
                                            common/harness/gpu/*.cpp)
list(FILTER harness_sources EXCLUDE REGEX "/main\\.cpp$")
add_library(harness OBJECT ${harness_sources})
gencode(harness ${LADDER_ARCHS})
target_link_libraries(harness PUBLIC CUDA::cudart_static CUDA::cublas CUDA::cublasLt
                                     benchmark::benchmark Threads::Threads ${CMAKE_DL_LIBS})
if(CMAKE_BUILD_TYPE STREQUAL Debug)
  target_compile_definitions(harness PUBLIC LADDER_DEBUG_BUILD)
endif()
add_library(program_main OBJECT common/harness/main.cpp)
target_link_libraries(program_main PRIVATE harness)  # what it includes

function(add_step_object id file arch)
  archs_of("${arch}" archs)
  if(NOT archs)
    message(STATUS "${id} needs ${arch}: not built for ${LADDER_ARCHS}")
    return()
  endif()
  add_library(step_${id} OBJECT "${file}")
  gencode(step_${id} ${archs})
  target_compile_definitions(step_${id} PRIVATE STEP_ID="${id}")
endfunction()

function(add_step_program id base arch unit)
  add_executable(${id} $<TARGET_OBJECTS:step_${id}>)
  if(TARGET step_${base})
    target_sources(${id} PRIVATE $<TARGET_OBJECTS:step_${base}>)
  endif()
  program_of(${id} ${id} "${base}" "${arch}" "${unit}")
  target_link_libraries(${id} PRIVATE harness)
endfunction()

# An experiment: program.cu and the objects of the steps it uses. With `// main: own` it starts
# itself; with `// needs: nccl` it is built where that library is.
function(add_experiment_program id file arch uses needs main)
  archs_of("${arch}" archs)
  set(objects "")
  foreach(used IN LISTS uses)
    if(NOT TARGET step_${used})
      message(STATUS "${id} uses ${used}, which is not built here: neither is ${id}")
      return()
    endif()
    list(APPEND objects $<TARGET_OBJECTS:step_${used}>)
  endforeach()
  if(NOT archs)
    message(STATUS "${id} needs ${arch}: not built for ${LADDER_ARCHS}")
    return()
  endif()
  if(needs STREQUAL "nccl")
    # In the system, with the toolkit, or as PyTorch brings it along, among the packages.
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c "import nvidia.nccl as n; print(list(n.__path__)[0])"
      OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(places $ENV{NCCL_HOME} "${CUDAToolkit_BIN_DIR}/.." "${CUDAToolkit_BIN_DIR}/../../nccl"
               ${package})
    find_path(NCCL_INCLUDE nccl.h HINTS ${places} PATH_SUFFIXES include)
    find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${places}
                 PATH_SUFFIXES lib lib64)
    if(NOT NCCL_INCLUDE OR NOT NCCL_LIBRARY)
      message(STATUS "${id} needs NCCL (libnccl-dev, or NCCL_HOME): not built")
      return()
    endif()
  elseif(needs)
    message(FATAL_ERROR "${file}: '// needs: ${needs}': only nccl is known")
  endif()
  add_executable(${id} "${file}" ${objects})
  if(NOT main STREQUAL "own")
    target_sources(${id} PRIVATE common/harness/experiment/main.cpp)
  endif()
  gencode(${id} ${archs})
  target_compile_definitions(${id} PRIVATE STEP_ID="${id}" LADDER_STEP="${id}"
                                           LADDER_ARCH="${arch}")
  target_link_libraries(${id} PRIVATE harness)
  if(needs STREQUAL "nccl")
    target_include_directories(${id} PRIVATE "${NCCL_INCLUDE}")
    target_link_libraries(${id} PRIVATE "${NCCL_LIBRARY}")
  endif()
endfunction()

function(add_example_program id file arch)
  archs_of("${arch}" archs)
  if(NOT archs)
    message(STATUS "${id} needs ${arch}: not built for ${LADDER_ARCHS}")
    return()
  endif()
  add_executable(${id} "${file}")
  gencode(${id} ${archs})
  target_compile_definitions(${id} PRIVATE STEP_ID="${id}")
  target_link_libraries(${id} PRIVATE harness)
endfunction()

# NN_idea.trace: the step plain, and once more with the trace backend of common/ptx. Built only when
# asked for. LADDER_TRACE_BLOCKS keeps as many blocks on an SM as the plain kernel has, where the
# registers that time stamps take would cost one: a list of ID=BLOCKS.
function(add_trace_program id file base arch unit)
  archs_of("${arch}" archs)
  if(NOT archs OR "${arch}" STREQUAL "75+")
    return()  # nothing asynchronous in it
  endif()
  add_library(step_${id}.trace OBJECT EXCLUDE_FROM_ALL "${file}")
  gencode(step_${id}.trace ${archs})
  target_compile_definitions(step_${id}.trace PRIVATE LADDER_TRACE STEP_ID="${id}.trace")
  foreach(pair IN LISTS LADDER_TRACE_BLOCKS)
    if(pair MATCHES "^${id}=([1-9])$")
      target_compile_definitions(step_${id}.trace PRIVATE LADDER_TRACE_BLOCKS=${CMAKE_MATCH_1})
    endif()
  endforeach()
  # A few spilled registers are no error here: no guard around nvcc.
  set_target_properties(step_${id}.trace PROPERTIES CUDA_COMPILER_LAUNCHER "")
  # Both define what a step gives to others, such as 29's gemm(): the traced one keeps its own.
  set(traced "${CMAKE_CURRENT_BINARY_DIR}/${id}.trace.o")
  add_custom_command(
    OUTPUT "${traced}"
    COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DOBJCOPY=${CMAKE_OBJCOPY}
            "-DFROM=$<TARGET_OBJECTS:step_${id}.trace>" "-DTO=${traced}"
            -P "${PROJECT_SOURCE_DIR}/cmake/localize.cmake"
    DEPENDS step_${id}.trace "$<TARGET_OBJECTS:step_${id}.trace>" cmake/localize.cmake VERBATIM)
  add_executable(${id}.trace EXCLUDE_FROM_ALL $<TARGET_OBJECTS:step_${id}> "${traced}")
  program_of(${id}.trace ${id} "${base}" "${arch}" "${unit}")
  target_link_libraries(${id}.trace PRIVATE harness)
endfunction()

# Tests that need a GPU: tests/gpu_*.cu, one program. Run by `./ladder test` where there is one.
function(add_ladder_tests)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/gpu_*.cu")
  step_tests(sources objects)
  if(sources)
    include(cmake/catch2.cmake)
    add_executable(gpu_tests ${sources} ${objects} $<TARGET_OBJECTS:catch_main>)
    gencode(gpu_tests ${LADDER_ARCHS})
    target_link_libraries(gpu_tests PRIVATE harness catch2)
    add_test(NAME gpu_tests COMMAND gpu_tests)
  endif()
endfunction()
