#include "supervisor/attempt_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "base/errno_status.h"

namespace millrace {

namespace {

constexpr size_t kTailBytes = 4096;
constexpr size_t kBufferBytes = 64 << 10;
constexpr std::chrono::seconds kPatience{5};
constexpr int kLookMillis = 100;

}  // namespace

absl::StatusOr<std::unique_ptr<AttemptOutput>> AttemptOutput::Make(std::unique_ptr<BoundedLog> log) {
  std::unique_ptr<AttemptOutput> made(new AttemptOutput(std::move(log)));
  made->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  bool good = static_cast<bool>(made->stop_);
  for (int i = 0; i < 2 && good; ++i) {
    std::array<int, 2> ends{};
    good = pipe2(ends.data(), O_CLOEXEC) == 0;
    if (!good) break;
    Stream& stream = made->streams_[i];
    stream.read_end = UniqueFd(ends[0]);
    stream.write_end = UniqueFd(ends[1]);
    stream.destination = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  if (!good) return ErrnoStatus(errno, "the output of the command", "making a pipe for");
  return made;
}

AttemptOutput::~AttemptOutput() {
  (void)Finish();
}

void AttemptOutput::Begin() {
  last_ = Clock::now().time_since_epoch().count();
  for (Stream& stream : streams_) stream.write_end = UniqueFd(-1);
  thread_ = std::thread([this] { Copy(); });
}

absl::Status AttemptOutput::Finish() {
  if (!thread_.joinable()) return absl::OkStatus();
  give_up_ = (Clock::now() + kPatience).time_since_epoch().count();
  eventfd_write(stop_.get(), 1);
  thread_.join();
  for (Stream& stream : streams_) stream.read_end = UniqueFd(-1);
  return log_status_;
}

void AttemptOutput::Copy() {
  while (true) {
    const bool stopping = give_up_ != 0;
    std::array<pollfd, 3> ready{};
    for (int i = 0; i < 2; ++i) ready[i] = {streams_[i].read_end.get(), POLLIN, 0};
    ready[2] = {stopping ? -1 : stop_.get(), POLLIN, 0};
    if (ready[0].fd < 0 && ready[1].fd < 0 && stopping) return;
    poll(ready.data(), ready.size(), stopping ? 0 : -1);
    bool copied = false;
    for (int i = 0; i < 2; ++i)
      if (ready[i].revents != 0) copied = CopyOnce(streams_[i]) || copied;
    // All output of the command lay in the pipes when the stop was asked for; processes that it left behind may
    // continue.
    if (stopping && (!copied || Clock::now().time_since_epoch().count() >= give_up_)) return;
  }
}

// Returns false if there is nothing.
bool AttemptOutput::CopyOnce(Stream& stream) {
  std::array<char, kBufferBytes> buffer;
  const ssize_t got = read(stream.read_end.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    stream.read_end = UniqueFd(-1);
    return false;
  }
  last_ = Clock::now().time_since_epoch().count();
  const std::string_view text(buffer.data(), static_cast<size_t>(got));
  tail_.append(text.substr(text.size() - std::min(text.size(), kTailBytes)));
  if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  if (log_ && log_status_.ok()) log_status_ = log_->Append(text);
  if (stream.forwards) Forward(stream, text);
  // The command learns that nobody reads it, as if it had no supervisor.
  if (!stream.forwards && !log_) stream.read_end = UniqueFd(-1);
  return true;
}

void AttemptOutput::Forward(Stream& stream, std::string_view text) {
  while (!text.empty()) {
    // A reader that does not read must not make this thread wait beyond the end.
    pollfd ready{stream.destination, POLLOUT, 0};
    const int got = poll(&ready, 1, kLookMillis);
    const Clock::rep give_up = give_up_;
    if (got == 0 && give_up != 0 && Clock::now().time_since_epoch().count() >= give_up) {
      stream.forwards = false;
      return;
    }
    if (got <= 0) continue;
    // A pipe that is ready takes so much without waiting.
    const ssize_t wrote = write(stream.destination, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (wrote < 0) {
      stream.forwards = false;
      return;
    }
    text.remove_prefix(static_cast<size_t>(wrote));
  }
}

}  // namespace millrace
