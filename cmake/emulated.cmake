# The emulated device: g++ and Boost.Context, no CUDA toolkit.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  message(FATAL_ERROR "the emulated device is built with g++ 11 or later, "
                      "not ${CMAKE_CXX_COMPILER_ID}")
endif()
find_package(Boost REQUIRED COMPONENTS context)

add_compile_definitions(LADDER_EMULATED)
# Kernels are compiled for ThreadSanitizer but linked without its runtime: the emulator defines
# the hooks, and so sees every plain load and store. The optimisations that split, merge or widen
# accesses are off: what is counted is what the kernel says. -g is what reports take lines from;
# where variables are at each instruction takes time to work out, and nobody asks.
set(kernel_flags -fsanitize=thread -fno-tree-sra -fno-tree-vectorize -fno-store-merging
                 -fno-strict-aliasing -fno-pie -O1 -g -fno-var-tracking
                 -fno-var-tracking-assignments -Wno-tsan -Wno-unknown-pragmas -Wno-attributes
                 -Wno-psabi)

file(GLOB emulator_sources CONFIGURE_DEPENDS common/emulator/*.cpp common/ptx/emulated/*.cpp)
file(GLOB harness_sources CONFIGURE_DEPENDS common/harness/*.cpp)
list(FILTER harness_sources EXCLUDE REGEX "/main\\.cpp$")
add_library(harness OBJECT ${emulator_sources} ${harness_sources})
target_compile_options(harness PRIVATE -g -fno-pie)
target_link_libraries(harness PUBLIC Boost::context Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(harness PUBLIC -no-pie)
add_library(program_main OBJECT common/harness/main.cpp)
target_compile_options(program_main PRIVATE -fno-pie)

# What every kernel includes, compiled once.
file(WRITE "${CMAKE_BINARY_DIR}/kernels/step.cpp" "#include \"common/step.h\"\n")
add_library(step_header OBJECT "${CMAKE_BINARY_DIR}/kernels/step.cpp")
target_compile_options(step_header PRIVATE ${kernel_flags})
target_precompile_headers(step_header PRIVATE "${PROJECT_SOURCE_DIR}/common/step.h")

# kernel_source(ID FILE VARIABLE): a .cpp that is FILE, which g++ would take for a linker script.
function(kernel_source id file variable)
  set(source "${CMAKE_BINARY_DIR}/kernels/${id}.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT
       "#undef STEP_ID\n#define STEP_ID \"${id}\"\n#include \"${file}\"\n")
  set(${variable} "${source}" PARENT_SCOPE)
endfunction()

function(add_step_object id file arch)
  file(STRINGS "${file}" gpu_only REGEX "^// gpu-only" LIMIT_COUNT 1)
  if(gpu_only)
    message(STATUS "${id} is GPU-only: not built for the emulated device")
    return()
  endif()
  kernel_source(${id} "${file}" source)
  add_library(step_${id} OBJECT "${source}")
  target_compile_options(step_${id} PRIVATE ${kernel_flags})
  target_precompile_headers(step_${id} REUSE_FROM step_header)
endfunction()

function(add_step_program id base arch unit)
  add_executable(${id} $<TARGET_OBJECTS:step_${id}>)
  program_of(${id} ${id} "${base}" "${arch}" "${unit}")
  target_compile_options(${id} PRIVATE -fno-pie)
  target_link_libraries(${id} PRIVATE harness)
endfunction()

function(add_example_program id file arch)
  kernel_source(${id} "${file}" source)
  add_executable(${id} "${source}")
  target_compile_options(${id} PRIVATE ${kernel_flags})
  target_precompile_headers(${id} REUSE_FROM step_header)
  target_link_libraries(${id} PRIVATE harness)
endfunction()

# traps/NAME/trap.cu that include common/gpu/gpu.h run here too, as trap_NAME (./ladder learn trap).
file(GLOB trap_files CONFIGURE_DEPENDS traps/*/trap.cu)
foreach(file IN LISTS trap_files)
  file(STRINGS "${file}" portable REGEX "^#include \"common/gpu/gpu.h\"" LIMIT_COUNT 1)
  if(portable)
    get_filename_component(name "${file}" DIRECTORY)
    get_filename_component(name "${name}" NAME)
    kernel_source(trap_${name} "${file}" source)
    add_executable(trap_${name} EXCLUDE_FROM_ALL "${source}")
    target_compile_options(trap_${name} PRIVATE ${kernel_flags})
    target_link_libraries(trap_${name} PRIVATE harness)
  endif()
endforeach()

# tests/harness_*.cpp: the checker and the statistics; tests/emulator_*.cpp hold kernels.
function(add_ladder_tests)
  include(cmake/catch2.cmake)
  target_compile_options(catch_main PRIVATE -fno-pie)
  foreach(suite harness emulator)
    file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${suite}_*.cpp")
    step_tests(sources objects)
    if(sources)
      add_executable(${suite}_tests ${sources} ${objects} $<TARGET_OBJECTS:catch_main>)
      if(suite STREQUAL emulator)
        target_compile_options(${suite}_tests PRIVATE ${kernel_flags})
        target_precompile_headers(${suite}_tests PRIVATE common/step.h tests/catch.h)
      else()
        target_compile_options(${suite}_tests PRIVATE -fno-pie -O1)
        target_precompile_headers(${suite}_tests PRIVATE tests/catch.h)
      endif()
      target_link_libraries(${suite}_tests PRIVATE harness catch2)
      add_test(NAME ${suite}_tests COMMAND ${suite}_tests)
    endif()
  endforeach()
endfunction()
