// Whole answers of a store, to HEAD, LIST and GET, of any bytes: what commands make of them. No crash, no memory for
// what a number says, nothing written outside the target or left half written, and no request that changes the store.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "cli/command_line.h"
#include "cli/commands.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

int report_fd = STDERR_FILENO;  // what commands print goes to /dev/null

void Require(bool condition, const char* what) {
  if (condition) return;
  dprintf(report_fd, "broken: %s\n", what);
  std::abort();
}

/// Gives each kind of request the same answer every time, so that an input means the same however requests are ordered.
struct Answers {
  std::string head;
  std::string list;
  std::string get;
};

/// Serves one connection after the other, each for one request: answers may end anywhere.
class Server {
 public:
  Server() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    Require(bind(listener_, any, size) == 0 && listen(listener_, 64) == 0, "a port of loopback");
    Require(getsockname(listener_, any, &size) == 0, "the port's number");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Server() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  uint16_t port() const { return port_; }
  void Set(Answers answers) {
    std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
    changes_ = 0;
  }
  int changes() const { return changes_; }

 private:
  void Serve() {
    for (int fd = -1; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      const timeval patience{.tv_sec = 1, .tv_usec = 0};
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      std::string request;
      std::array<char, 4096> piece;
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = recv(fd, piece.data(), piece.size(), 0);
        if (got <= 0) break;
        request.append(piece.data(), static_cast<size_t>(got));
      }
      const std::string answer = AnswerTo(request);
      for (size_t sent = 0; sent < answer.size();) {
        const ssize_t now = send(fd, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (now <= 0) break;
        sent += static_cast<size_t>(now);
      }
      close(fd);
    }
  }

  std::string AnswerTo(std::string_view request) {
    std::lock_guard lock(mutex_);
    if (request.starts_with("HEAD ")) return answers_.head;
    if (!request.starts_with("GET ")) {
      changes_ += request.empty() ? 0 : 1;
      return "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    }
    return request.substr(0, request.find("\r\n")).find("list-type=2") != request.npos ? answers_.list : answers_.get;
  }

  const int listener_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  Answers answers_;
  std::atomic<int> changes_{0};
  std::thread thread_;
};

struct Case {
  void (*add)(Command app);
  std::vector<const char*> words;
  bool may_write;  // to the store: an index lies beside its data
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {AddLs, {"ls", "s3://bkt/k/"}, false},
      {AddLs, {"ls", "--recursive", "s3://bkt/k"}, false},
      {AddLs, {"ls", "s3://bkt/k/*/a*"}, false},
      {AddCp, {"cp", "s3://bkt/k/a.jpg", "out/"}, false},
      {AddCp, {"cp", "--recursive", "s3://bkt/k", "out"}, false},
      {AddCp, {"cp", "s3://bkt/k/**", "out"}, false},
      {AddRm, {"rm", "--dry-run", "--recursive", "s3://bkt/k/"}, false},
      {AddRm, {"rm", "--dry-run", "s3://bkt/k/a.jpg", "s3://bkt/k/*"}, false},
      {AddIndex, {"index", "s3://bkt/k/"}, true},
      {AddIndex, {"index", "s3://bkt/k/a.jpg"}, true},
  };
  return cases;
}

/// The folder holds nothing but the target, and in it no file that is half written.
void CheckFiles(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    Require(name == "out" || name == "cache", "a file outside the target");
  }
  if (!fs::is_directory(folder / "out")) return;  // one object may be named as the target, and become a file
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder / "out"))
    Require(!IsTemporaryName(entry.path().filename().string()), "a temporary file is left");
}

fs::path WorkFolder() {
  std::string name = (fs::temp_directory_path() / "millrace-answers-fuzz-XXXXXX").string();
  Require(mkdtemp(name.data()) != nullptr, "a folder to work in");
  return name;
}

/// The world is made once, and removed when the process ends in good order.
struct World {
  World() {
    fs::create_directory(folder / "deep");
    const std::string endpoint = "http://127.0.0.1:" + std::to_string(server.port());
    const std::string cache = folder / "deep" / "cache";
    const std::array<std::pair<const char*, const char*>, 8> settings = {{{"AWS_ENDPOINT_URL", endpoint.c_str()},
                                                                          {"AWS_ACCESS_KEY_ID", "key"},
                                                                          {"AWS_SECRET_ACCESS_KEY", "secret"},
                                                                          {"AWS_REGION", "us-east-1"},
                                                                          {"AWS_MAX_ATTEMPTS", "1"},
                                                                          {"AWS_CONFIG_FILE", "/dev/null"},
                                                                          {"AWS_SHARED_CREDENTIALS_FILE", "/dev/null"},
                                                                          {"MILLRACE_CACHE", cache.c_str()}}};
    for (const auto& [name, value] : settings) setenv(name, value, 1);
  }
  ~World() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  Server server;
  const fs::path folder = WorkFolder();
};

void Run(const Case& what, const fs::path& folder) {
  CommandLine line("millrace", "", "");
  what.add(line.root());
  std::vector<std::string> words = {"millrace"};
  for (const char* word : what.words)
    words.push_back(std::string_view(word).starts_with("out") ? (folder / word).string() : std::string(word));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int status = line.Run(static_cast<int>(words.size()), arguments.data());
  Require(status == 0 || status == 1, "the exit status");
}

}  // namespace
}  // namespace millrace::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::cli;
  static World world;
  static const int nowhere = [] {
    report_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<intptr_t>(report_fd)));
    return open("/dev/null", O_WRONLY | O_CLOEXEC);
  }();
  if (size == 0) return 0;
  // The first byte chooses the command; then the three answers, each up to a byte that no head has.
  const Case& what = Cases()[data[0] % Cases().size()];
  std::string_view rest(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto next = [&rest] {
    const std::string_view part = rest.substr(0, rest.find('\xff'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    return std::string(part);
  };
  Answers answers;
  answers.head = next();
  answers.list = next();
  answers.get = next();
  world.server.Set(std::move(answers));

  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  Run(what, world.folder / "deep");
  dup2(out, STDOUT_FILENO);
  dup2(report_fd, STDERR_FILENO);
  close(out);

  Require(what.may_write || world.server.changes() == 0, "the store was changed");
  CheckFiles(world.folder / "deep");
  for (const char* name : {"out", "cache"}) std::filesystem::remove_all(world.folder / "deep" / name);
  return 0;
}
