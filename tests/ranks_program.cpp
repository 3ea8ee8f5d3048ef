// A run of several ranks without a GPU, for tests/test_ranks.py: what the ranks do is in the words.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/harness/ranks.h"
#include "common/harness/text.h"

using namespace harness;

int run(int argc, char** argv) {
  const auto word = [&](const char* name) {  // value of NAME=VALUE among the arguments
    for (int i = 1; i < argc; ++i)
      if (const size_t n = strlen(name); !strncmp(argv[i], name, n) && argv[i][n] == '=')
        return atoi(argv[i] + n + 1);
    return -1;
  };
  const RankInfo info = rank_info();
  if (!info.told) return launch_ranks("test", word("ranks"), argv, double(word("limit")));
  if (info.rank == word("dies_before")) raise(SIGKILL);
  Ranks ranks("test", info, double(word("patience")));
  if (info.rank == word("trouble"))
    ranks.watch([] { return std::string("the network is down"); });
  char words[8] = "";
  if (info.rank == 0) strcpy(words, "from 0");
  ranks.broadcast(words, sizeof(words));
  const double sum = ranks.sum(info.rank + 1), most = ranks.max(info.rank == 1 ? 7.5 : 0);
  if (strcmp(words, "from 0")) return 1;
  if (info.rank == 0) printf("sum %g max %g\n", sum, most);
  fflush(stdout);
  if (info.rank == word("dies")) raise(SIGKILL);
  if (info.rank == word("crashes")) *static_cast<volatile int*>(nullptr) = 1;
  if (info.rank == word("hangs")) pause();
  if (info.rank == word("elsewhere")) ranks.max(1);
  if (info.rank == word("fails")) {
    fprintf(stderr, "error: test: out of memory\n");
    return 3;
  }
  if (word("stuck") == 1) sleep(600);  // as in a driver call whose kernel waits for another rank
  ranks.barrier();
  if (word("wrong") == 1) return 1;    // all come to the same verdict
  ranks.leave();
  if (info.rank == word("late")) usleep(500000);
  return 0;
}

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& e) {
    fprintf(stderr, "error: test: %s\n", e.what());
    return 2;
  }
}
