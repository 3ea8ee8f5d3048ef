// Mutation testing: which of a kernel's barriers, waits, arrivals, fences and commits would be
// missed if they were not there? Keyed by the place of the call, so no kernel is edited.
#include "common/emulator/mutate.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "common/emulator/report.h"

namespace emu {

// A learner's way: EMU_MUTATE="114 skip" leaves out what line 114 of the kernel calls.
static const char* const planted = getenv("EMU_MUTATE");
bool mutating = planted != nullptr;

namespace {

struct CallSite {
  std::string wrapper;
  Loc here;
  bool can_change;
  bool same(const char* w, Loc l) const {
    return here.line == l.line && !strcmp(here.file, l.file) && wrapper == w;
  }
};
std::vector<CallSite> call_sites;  // of the run without a mutation
const CallSite* target = nullptr;
Mutation target_mutation = Mutation::none;
int child_pipe = -1;  // in a child: to the parent

constexpr int kNamed = 4;             // exit code of a child whose report names a place
constexpr unsigned kTimeLimit = 60;  // seconds for one mutant

struct Outcome {
  bool caught = false, named = false;
  std::string how;
};

std::string source_line(Loc here) {
  std::ifstream file(here.file);
  std::string line;
  for (unsigned i = 0; i < here.line && std::getline(file, line); ++i) {
  }
  const size_t text = line.find_first_not_of(' ');
  return text == line.npos ? "" : line.substr(text);
}

/// Lines "key # why it is redundant": the key is part of the source line, or "wrapper skip".
struct Argument {
  std::string key, why;
};
std::vector<Argument> read_arguments(const std::string& kernel) {
  std::vector<Argument> list;
  const std::string path = kernel.substr(0, kernel.rfind('/') + 1) + "survivors";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t hash = line.find(" # ");
    if (hash == line.npos || line[0] == '#') continue;
    std::string key = line.substr(0, hash);
    key.erase(key.find_last_not_of(' ') + 1);
    list.push_back({key, line.substr(hash + 3)});
  }
  return list;
}

Outcome run_mutant(const std::function<int()>& check) {
  int ends[2];
  if (pipe(ends)) return {false, false, "no pipe"};
  fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return {false, false, "no child process"};
  if (child == 0) {
    close(ends[0]);
    child_pipe = ends[1];
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    alarm(kTimeLimit);
    int wrong = 1;
    std::string said = "wrong result";
    try {
      wrong = check();
    } catch (const std::exception& e) {
      said = e.what();
    }
    if (wrong && write(child_pipe, said.data(), said.size()) < 0) _exit(3);
    _exit(wrong ? 1 : 0);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    return {true, false, WTERMSIG(status) == SIGALRM ? "hangs" : "crashes: " + said};
  return {WEXITSTATUS(status) != 0, WEXITSTATUS(status) == kNamed, said};
}

}  // namespace

Mutation mutated_slow(const char* wrapper, Loc here, bool can_change) {
  if (planted && here.line == unsigned(atoi(planted)))
    return strstr(planted, "change") ? Mutation::change : Mutation::skip;
  if (target) return target->same(wrapper, here) ? target_mutation : Mutation::none;
  for (const CallSite& s : call_sites)
    if (s.same(wrapper, here)) return Mutation::none;
  call_sites.push_back({wrapper, here, can_change});
  return Mutation::none;
}

void mutation_found(const std::string& report, bool named) {
  if (child_pipe < 0) return;
  const bool ok = write(child_pipe, report.data(), report.size()) >= 0;
  _exit(!ok ? 3 : named ? kNamed : 1);
}

int mutate(const std::function<int()>& check) {
  mutating = true;
  target = nullptr;
  call_sites.clear();
  if (check() != 0 || reports()) {
    fprintf(stderr, "error: the kernel is not right without a mutation\n");
    return 2;
  }
  if (call_sites.empty()) {
    printf("no call to skip or change\n");
    return 0;
  }
  const std::vector<Argument> arguments = read_arguments(call_sites[0].here.file);
  unsigned caught = 0, named = 0, argued = 0, missed = 0;
  for (const CallSite& site : call_sites)
    for (Mutation m : {Mutation::skip, Mutation::change}) {
      if (m == Mutation::change && !site.can_change) continue;
      target = &site;
      target_mutation = m;
      const Outcome outcome = run_mutant(check);
      const std::string what = site.wrapper + (m == Mutation::skip ? " skip" : " change");
      std::string verdict = "caught";
      std::string detail = outcome.how.substr(0, outcome.how.find('\n'));
      if (outcome.caught) {
        ++caught;
        named += outcome.named;
        if (!outcome.named) verdict = "caught, unnamed";
      } else {
        const std::string text = source_line(site.here);
        const Argument* argument = nullptr;
        for (const Argument& a : arguments)
          if (text.find(a.key) != text.npos || what.find(a.key) != what.npos) argument = &a;
        ++(argument ? argued : missed);
        verdict = argument ? "redundant" : "SURVIVED";
        detail = argument ? argument->why : text;
      }
      printf("%-15s  %-14s  %-32s  %s\n", verdict.c_str(), where(site.here).c_str(), what.c_str(),
             detail.c_str());
      fflush(stdout);
    }
  target = nullptr;
  mutating = false;
  printf("%u mutations: %u caught (%u name a buffer or barrier and a line), %u argued for in "
         "'survivors', %u survived\n", caught + argued + missed, caught, named, argued, missed);
  return missed ? 1 : 0;
}

}  // namespace emu
