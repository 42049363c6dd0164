#include "cli/bench_home.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/errno_status.h"
#include "base/unique_fd.h"

namespace millrace::cli {

namespace {

constexpr const char* kListening = "listening on ";

// Between fork and exec: calls that are safe there, and nothing else.
[[noreturn]] void BecomeServer(char* const* arguments, pid_t parent, int output) {
  setpgid(0, 0);  // Ctrl-C is for the benchmark, which then ends the server
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before that was set
  dup2(output, STDOUT_FILENO);
  execv("/proc/self/exe", arguments);
  _exit(127);
}

// Returns the output of the server until it listens, or until its end if it ends before.
std::string ReadUntilListening(int fd) {
  std::string said;
  char byte = 0;
  while (said.size() < 4096) {
    const ssize_t got = read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (byte == '\n' && said.find(kListening) != std::string::npos) break;
    said += byte;
  }
  return said;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(uint64_t first_byte_ms,
                                                                const std::vector<std::string>& faults) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "the local server", "making a pipe");
  const UniqueFd output(ends[0]);
  UniqueFd input(ends[1]);
  std::vector<std::string> words = {"millrace", "devstore", "mem:", "--bucket", "bench", "--port", "0"};
  if (first_byte_ms > 0) words.insert(words.end(), {"--first-byte-ms", std::to_string(first_byte_ms)});
  for (const std::string& fault : faults) words.insert(words.end(), {"--fault", fault});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "the local server", "starting a process");
  if (pid == 0) BecomeServer(arguments.data(), parent, input.get());
  auto server = std::unique_ptr<LocalServer>(new LocalServer(pid));
  input = UniqueFd(-1);
  const std::string said = ReadUntilListening(output.get());
  const size_t at = said.find(kListening);
  if (at == std::string::npos) {
    return absl::UnavailableError("the local server did not start; `millrace devstore mem:` shows why");
  }
  server->url_ = said.substr(at + std::strlen(kListening));
  return server;
}

LocalServer::~LocalServer() {
  kill(pid_, SIGKILL);  // it keeps nothing
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void LocalServer::UseForAllStores() const {
  for (const char* name : {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL_S3",
                           "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_DEFAULT_REGION"}) {
    unsetenv(name);
  }
  setenv("AWS_CONFIG_FILE", "/dev/null", 1);
  setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  setenv("AWS_ENDPOINT_URL", url_.c_str(), 1);
  setenv("AWS_ACCESS_KEY_ID", "millrace", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "millrace-secret", 1);
  setenv("AWS_REGION", "us-east-1", 1);
  setenv("no_proxy", "127.0.0.1", 1);
}

}  // namespace millrace::cli
