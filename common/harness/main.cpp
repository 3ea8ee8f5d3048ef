// The program of one step: checks and measures it. One process, one step, so that a crash or a
// hang is one red row of the front door's table. Command line: options.h.
#include <cstdio>
#include <new>

#include "common/harness/check.h"
#include "common/harness/see.h"

// Which step this is: id, base, arch, unit. The build writes it (program_of in CMakeLists.txt).
extern const char* const program_of_build[4];

int main(int argc, char** argv) {
  using namespace harness;
  const char* const* of = program_of_build;
  Program program = {of[0], of[1], of[2], of[3]};
  if (program.base == "none") program.base.clear();
  const auto fail = [](const std::string& message, int code) {
    fflush(stdout);
    fprintf(stderr, "error: %s\n", message.c_str());
    return code;
  };
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (argc == 2 && (arguments[0] == "--help" || arguments[0] == "-h")) {
      puts(kUsage);
      return 0;
    }
    if (argc > 1 && is_see_command(arguments[0])) return see_command(program, arguments);
    const Options options = parse_options(arguments);
    if (options.command == "check") return check_command(program, options);
    if (options.command == "bench") return bench_command(program, options);
    if (options.command == "ceilings") return ceilings_command(program, options);
    if (options.command == "tune") return tune_command(program, options);
    if (options.command == "trust") return trust_command(program, options);
    if (options.command == "mutate") return mutate_command(program, options);
    // As many SMs as it is told: what a step chooses depends on that alone.
    if (options.sms) gpu::spared_sms() = gpu::num_sms() - options.sms;
    std::string choices;
    if (const Candidates candidates = find_step(program.step).candidates)
      for (const Size& size : options.sizes)
        choices += (choices.empty() ? "" : ", ") + quoted(text(size)) + ": " +
                   quoted(candidates(make_problem(size)).at(0));
    printf("{\"step\": %s, \"base\": %s, \"arch\": %s, \"unit\": %s, \"choices\": {%s}, "
           "\"device\": %s}\n",
           quoted(program.step).c_str(), quoted(program.base).c_str(),
           quoted(program.arch).c_str(), quoted(program.unit).c_str(), choices.c_str(),
           describe_device().c_str());
    return 0;
  } catch (const UsageError& e) {
    return fail(e.what(), 2);
  } catch (const gpu::Error& e) {
    return fail(program.step + ": " + e.what(), 3);
  } catch (const std::bad_alloc&) {
    return fail(program.step + ": out of host memory", 3);
  } catch (const std::exception& e) {
    return fail(program.step + ": " + e.what(), 3);
  }
}
