// The program of an experiment that has no main of its own.
#include "common/harness/experiment.h"

int main(int argc, char** argv) {
  return harness::experiment_main(LADDER_PROGRAM, {argv + 1, argv + argc}, experiment);
}
