// step: 29_any_shape.sm80
#include "tests/sm80_cases.h"

TEST_CASE("sm80: every tile is right, and no other is taken") { check_tiles(20, 1 << 25); }
