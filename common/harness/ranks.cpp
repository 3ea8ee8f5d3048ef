#include "common/harness/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/harness/text.h"

namespace harness {
namespace {

constexpr int kDefaultPort = 29533;
constexpr uint32_t kMagic = 0x4c414444;

struct Hello {
  uint32_t magic;
  int32_t rank, size;
};
struct Message {  // both ways
  char what;      // max, sum, barrier, leave
  double value;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

const char* variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = getenv(name); value && *value) return value;
  return nullptr;
}

int number(const char* text, const char* what, int least) {
  char* end;
  const long value = strtol(text, &end, 10);
  if (*end || value < least || value > 65535)
    throw UsageError(std::string(what) + " is '" + text + "', which is no number from " +
                     std::to_string(least) + " on");
  return int(value);
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

void quick(int socket) {  // small messages, at once
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/// A socket that takes connections; port 0 is any free one.
int listen_on(in_addr_t where, int port) {
  const int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = where;
  at.sin_port = htons(uint16_t(port));
  if (bind(s, reinterpret_cast<sockaddr*>(&at), sizeof(at)) || listen(s, 128)) {
    const std::string why = strerror(errno);
    close(s);
    throw UsageError("rank 0 can't listen on port " + std::to_string(port) + " (" + why +
                     "): set MASTER_PORT to a free one, for all ranks");
  }
  return s;
}

}  // namespace

RankInfo rank_info() {
  RankInfo info;
  const char* rank = variable({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"});
  const char* size = variable({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  if (!rank && !size) return info;
  if (!rank || !size)
    throw UsageError(std::string("a launcher has set ") +
                     (rank ? "a rank but no number of ranks (RANK without WORLD_SIZE?)"
                           : "a number of ranks but no rank (WORLD_SIZE without RANK?)"));
  info.told = true;
  info.size = number(size, "the number of ranks", 1);
  info.rank = number(rank, "the rank", 0);
  if (info.rank >= info.size)
    throw UsageError("this is rank " + std::to_string(info.rank) + " of " +
                     std::to_string(info.size) + ": ranks count from 0");
  const char* local = variable(
      {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
  info.local = local ? number(local, "the local rank", 0) : info.rank;
  const char* hosts = variable({"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"});
  const char* address = variable({"MASTER_ADDR"});
  if (address) info.address = address;
  else if (info.local != info.rank || (hosts && number(hosts, "the local size", 1) < info.size))
    throw UsageError("ranks of several hosts need MASTER_ADDR, the name or address of the host of "
                     "rank 0 (mpirun -x MASTER_ADDR=...)");
  const char* port = variable({"MASTER_PORT"});
  info.port = port ? number(port, "MASTER_PORT", 1) : kDefaultPort;
  // torchrun itself listens there then, for PyTorch's own ranks.
  if (const char* taken = variable({"TORCHELASTIC_USE_AGENT_STORE"}); taken && *taken == 'T')
    ++info.port;
  info.ours = getenv("LADDER_LAUNCHED") != nullptr;
  return info;
}

// ---- the launcher ------------------------------------------------------------------------------

int launch_ranks(const std::string& name, int size, char** argv, double limit) {
  const int listener = listen_on(htonl(INADDR_LOOPBACK), 0);
  sockaddr_in at;
  socklen_t length = sizeof(at);
  getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length);
  const auto set = [](const char* key, int value) {
    setenv(key, std::to_string(value).c_str(), 1);
  };
  const pid_t launcher = getpid();
  std::vector<pid_t> ranks;
  fflush(stdout);
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // a launcher that is killed takes its ranks along
      if (getppid() != launcher) _exit(kPeerGone);
      set("RANK", rank), set("WORLD_SIZE", size), set("LOCAL_RANK", rank);
      set("MASTER_PORT", ntohs(at.sin_port)), setenv("MASTER_ADDR", "127.0.0.1", 1);
      set("LADDER_LAUNCHED", 1);
      if (rank == 0) set("LADDER_LISTENER", listener);
      else close(listener);
      execv("/proc/self/exe", argv);
      _exit(127);
    }
    if (child > 0) ranks.push_back(child);
  }
  close(listener);
  const std::string begin = "error: " + name + ": ";
  std::string why;
  if (int(ranks.size()) < size) why = "can't start " + std::to_string(size) + " ranks";
  int code = why.empty() ? 0 : 3;
  const double started = now();
  double end_at = code ? now() : started + limit;  // when those that still run are killed
  for (size_t left = ranks.size(); left > 0;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    const auto found = std::find(ranks.begin(), ranks.end(), pid);
    if (pid > 0 && found != ranks.end()) {
      *found = -1;
      --left;
      const std::string who = rank_text(int(found - ranks.begin()));
      const int ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (ended != 0 && (code == 0 || code == kPeerGone)) {
        code = ended;
        if (WIFSIGNALED(status)) why = who + " died (" + strsignal(WTERMSIG(status)) + ")";
        else if (ended == kPeerGone) why = who + " lost another rank";
        else why.clear();  // it has said why itself
        end_at = std::min(end_at, now() + 2);
      }
      continue;
    }
    if (now() > end_at) {
      if (code == 0) {
        code = 3;
        why = "no end after " + fixed(limit, 0) + " s: " + std::to_string(left) +
              " ranks were ended";
      }
      for (pid_t rank : ranks)
        if (rank > 0) kill(rank, SIGKILL);
      end_at = now() + 1e9;
    }
    sleep_for(0.01);
  }
  if (!why.empty())
    fprintf(stderr, "%s%s%s\n", begin.c_str(), why.c_str(),
            code > 128 && size > 1 ? ", the other ranks were ended" : "");
  return code;
}

// ---- one rank ----------------------------------------------------------------------------------

Ranks::Ranks(const std::string& name, const RankInfo& info, double patience)
    : name_(name), info_(info), patience_(patience), sockets_(size_t(info.size), -1) {
  signal(SIGPIPE, SIG_IGN);
  last_word_ = now();
  if (info_.size > 1) info_.rank == 0 ? listen_for_all() : connect_to_first();
  last_word_ = now();
  watcher_ = std::thread([this] { look_around(); });
}

Ranks::~Ranks() {
  stop_ = true;
  watcher_.join();
  for (int s : sockets_)
    if (s >= 0) close(s);
}

void Ranks::listen_for_all() {
  const char* given = getenv("LADDER_LISTENER");
  const int listener =
      given ? number(given, "LADDER_LISTENER", 0) : listen_on(htonl(INADDR_ANY), info_.port);
  fcntl(listener, F_SETFD, FD_CLOEXEC);
  int missing = info_.size - 1;
  for (const double until = now() + patience_; missing > 0;) {
    pollfd waiting = {listener, POLLIN, 0};
    if (poll(&waiting, 1, 200) <= 0) {
      if (now() < until) continue;
      int first = 1;
      while (sockets_[size_t(first)] >= 0) ++first;
      end(std::to_string(missing) + " of " + std::to_string(info_.size) + " ranks did not come "
          "within " + fixed(patience_, 0) + " s, first " + rank_text(first), false);
    }
    const int s = accept(listener, nullptr, nullptr);
    if (s < 0) continue;
    const timeval short_time = {5, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof(short_time));
    Hello hello = {};
    if (recv(s, &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello) || hello.magic != kMagic) {
      close(s);  // a stranger
      continue;
    }
    if (hello.size != info_.size || hello.rank < 1 || hello.rank >= info_.size ||
        sockets_[size_t(hello.rank)] >= 0)
      end("a process came as rank " + std::to_string(hello.rank) + " of " +
          std::to_string(hello.size) + ", which there is already or does not fit " +
          std::to_string(info_.size) + " ranks: is another run on port " +
          std::to_string(info_.port) + "? set MASTER_PORT", false);
    quick(s);
    sockets_[size_t(hello.rank)] = s;
    --missing;
  }
  close(listener);
  for (int rank = 1; rank < info_.size; ++rank) write(rank, &kMagic, sizeof(kMagic));
}

void Ranks::connect_to_first() {
  const std::string where = info_.address + ":" + std::to_string(info_.port);
  for (const double until = now() + patience_;; sleep_for(0.1)) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    std::string why;
    if (const int status = getaddrinfo(info_.address.c_str(), std::to_string(info_.port).c_str(),
                                       &hints, &found)) {
      why = gai_strerror(status);
    } else {
      const int s = socket(AF_INET, SOCK_STREAM, 0);
      const bool connected = connect(s, found->ai_addr, found->ai_addrlen) == 0;
      why = strerror(errno);
      freeaddrinfo(found);
      if (connected) {
        quick(s);
        sockets_[0] = s;
        break;
      }
      close(s);
    }
    if (now() > until)
      end("no rank 0 at " + where + " within " + fixed(patience_, 0) + " s (" + why + ")", false);
  }
  const Hello hello = {kMagic, info_.rank, info_.size};
  write(0, &hello, sizeof(hello));
  uint32_t answer = 0;
  read(0, &answer, sizeof(answer));
  if (answer != kMagic) end("what listens at " + where + " is not rank 0 of this run", false);
}

void Ranks::read(int peer, void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  // Rank 0 sees most and gives up first: one line, not one of every rank.
  const double limit = info_.rank == 0 ? patience_ : 1.5 * patience_;
  for (const double until = now() + limit; bytes > 0;) {
    pollfd waiting = {sockets_[size_t(peer)], POLLIN, 0};
    if (poll(&waiting, 1, 200) <= 0) {
      if (now() > until)
        end(rank_text(peer) + " lives but has not answered for " + fixed(limit, 0) + " s", false);
      continue;
    }
    const ssize_t got = recv(sockets_[size_t(peer)], to, bytes, 0);
    if (got <= 0) gone(peer);
    to += got;
    bytes -= size_t(got);
  }
}

void Ranks::write(int peer, const void* data, size_t bytes) {
  if (send(sockets_[size_t(peer)], data, bytes, MSG_NOSIGNAL) != ssize_t(bytes)) gone(peer);
}

double Ranks::exchange(char what, double value) {
  const auto expect = [&](const Message& message, int peer) {
    if (message.what != what)
      end(rank_text(peer) + " is elsewhere in the program than rank " +
              std::to_string(info_.rank) + ": it went another way, or failed", true);
  };
  if (info_.rank > 0) {
    Message message = {what, value};
    write(0, &message, sizeof(message));
    read(0, &message, sizeof(message));
    expect(message, 0);
    value = message.value;
  } else {
    for (int peer = 1; peer < info_.size; ++peer) {
      Message message = {};
      read(peer, &message, sizeof(message));
      expect(message, peer);
      value = what == 's' ? value + message.value : std::max(value, message.value);
    }
    const Message answer = {what, value};
    for (int peer = 1; peer < info_.size; ++peer) write(peer, &answer, sizeof(answer));
  }
  last_word_ = now();
  return value;
}

double Ranks::max(double value) { return exchange('m', value); }
double Ranks::sum(double value) { return exchange('s', value); }

void Ranks::broadcast(void* data, size_t bytes) {
  barrier();
  if (info_.rank > 0) return read(0, data, bytes);
  for (int peer = 1; peer < info_.size; ++peer) write(peer, data, bytes);
}

void Ranks::leave() {
  leaving_ = true;
  exchange('l', 0);
}

void Ranks::watch(std::function<std::string()> trouble) {
  const std::lock_guard<std::mutex> lock(mutex_);
  trouble_ = std::move(trouble);
}

void Ranks::look_around() {
  const double limit = (info_.rank == 0 ? 2 : 2.5) * patience_;
  while (!stop_) {
    std::vector<pollfd> fds;
    std::vector<int> who;
    for (int peer = 0; peer < info_.size; ++peer)
      if (sockets_[size_t(peer)] >= 0) {
        fds.push_back({sockets_[size_t(peer)], POLLRDHUP, 0});
        who.push_back(peer);
      }
    const int events = poll(fds.data(), fds.size(), 200);
    if (stop_ || leaving_) {
      sleep_for(0.01);
      continue;
    }
    for (size_t i = 0; events > 0 && i < fds.size(); ++i)
      if (fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) gone(who[i]);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const std::string why = trouble_(); !why.empty()) end(why, false);
    if (now() - last_word_ > limit)
      end("nothing has come to an end for " + fixed(limit, 0) + " s: a GPU or a network hangs",
          false);
  }
}

void Ranks::gone(int peer) {
  end(rank_text(peer) + " is gone: it failed, was ended, or its host is out of reach", true);
}

/// Not by exit(): other threads may be stuck in the driver, in a kernel that waits for a dead peer.
void Ranks::end(const std::string& why, bool peer_gone) {
  if (!peer_gone || !info_.ours)  // our launcher tells who it was, once
    fprintf(stderr, "error: %s: rank %d: %s\n", name_.c_str(), info_.rank, why.c_str());
  fflush(stderr);
  _exit(peer_gone ? kPeerGone : 3);
}

}  // namespace harness
