// Several processes of one run, one per GPU: who is who, small messages between them, and an end to
// all when one dies. No CUDA in it; what moves data between GPUs is the experiment's own business.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace harness {

/// What a launcher has told this process.
struct RankInfo {
  bool told = false;       // by anyone: else this process is alone, or has to be the launcher
  int rank = 0, size = 1;
  int local = 0;           // among those of this host: which GPU
  std::string address = "127.0.0.1";  // of rank 0
  int port = 0;
  bool ours = false;       // started by launch_ranks, which tells of deaths itself
};

/// Reads RANK, WORLD_SIZE, LOCAL_RANK (torchrun), OMPI_COMM_WORLD_* (Open MPI), PMI_* (MPICH,
/// Intel) or SLURM_*, and MASTER_ADDR, MASTER_PORT for where rank 0 is. Throws UsageError where
/// they contradict each other, or where ranks of several hosts lack an address.
RankInfo rank_info();

constexpr int kPeerGone = 4;  // exit code of a rank that ended because another one had

/// Starts this program `size` times, one rank each, and returns the exit code: that of the first to
/// fail. Then the others are ended, also after `limit` seconds, and a line says whose fault it was.
int launch_ranks(const std::string& name, int size, char** argv, double limit);

/// The connections of one rank: a star around rank 0 over TCP. A thread watches them: when another
/// rank dies or `trouble` says something, this process ends with a line, wherever it is stuck.
class Ranks {
 public:
  /// Waits until all have come. `patience`: seconds for that and for an answer later on; twice as
  /// long without a word between the ranks, and the run ends.
  Ranks(const std::string& name, const RankInfo& info, double patience = 120);
  ~Ranks();
  Ranks(const Ranks&) = delete;

  void broadcast(void* data, size_t bytes);  // from rank 0; all call it
  double max(double value);
  double sum(double value);
  void barrier() { exchange('b', 0); }
  void leave();  // all call it, at a good end: from here on nobody is missed

  /// Asked five times a second: "" or why the run cannot go on.
  void watch(std::function<std::string()> trouble);

 private:
  double exchange(char what, double value);
  void listen_for_all();
  void connect_to_first();
  void read(int peer, void* data, size_t bytes);
  void write(int peer, const void* data, size_t bytes);
  void look_around();
  [[noreturn]] void end(const std::string& why, bool peer_gone);
  [[noreturn]] void gone(int peer);

  const std::string name_;
  const RankInfo info_;
  const double patience_;
  std::vector<int> sockets_;  // by rank; rank 0 has all, the others have that of rank 0
  std::atomic<bool> leaving_{false}, stop_{false};
  std::atomic<double> last_word_{0};  // when the ranks last agreed on something
  std::mutex mutex_;
  std::function<std::string()> trouble_ = [] { return std::string(); };
  std::thread watcher_;
};

}  // namespace harness
