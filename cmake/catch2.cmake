# Catch2 v3 or v2 behind one target; tests include it by __has_include.
find_package(Catch2 REQUIRED)
if(NOT TARGET catch2)
  add_library(catch2 INTERFACE)
  if(TARGET Catch2::Catch2WithMain)
    target_link_libraries(catch2 INTERFACE Catch2::Catch2WithMain)
  else()
    target_link_libraries(catch2 INTERFACE Catch2::Catch2)
  endif()
endif()
add_library(catch_main OBJECT tests/catch_main.cpp)  # v2 needs a main, which takes a while
target_compile_options(catch_main PRIVATE -O1)
target_link_libraries(catch_main PRIVATE catch2)
