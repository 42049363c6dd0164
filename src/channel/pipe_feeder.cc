#include "channel/pipe_feeder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/decompressor.h"
#include "base/errno_status.h"
#include "channel/record_framer.h"
#include "plan/plan.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

// The kernel does not report that a reader that waits has opened a FIFO: it is tried.
constexpr int kTryMilliseconds = 10;
constexpr int kPipeBytes = 1 << 20;  // what a user may have in a pipe without further rights

bool IsFifo(const std::string& path) {
  struct stat file {};
  return lstat(path.c_str(), &file) == 0 && S_ISFIFO(file.st_mode);
}

OrderPolicy PipeOrder(const Channel& channel) {
  OrderPolicy order;
  order.shuffle = channel.shuffle_seed ? Shuffle::kGlobal : Shuffle::kNone;
  return order;
}

using ByteSink = absl::FunctionRef<absl::Status(ByteSpan)>;

/// Hands the bytes of one object on, decompressed and framed as the channel wants them.
class PartStream {
 public:
  PartStream(const Channel& channel, const ChannelPart& part) {
    const bool gzip = channel.gzip && part.is_object;
    if (gzip) decompressor_ = Decompressor::Make(Compression::kGzip);
    const uint64_t bytes = part.is_object ? part.size : part.text.size();
    if (channel.recordio) framer_.emplace(gzip ? std::nullopt : std::optional(bytes));
  }

  absl::Status Append(ByteSpan bytes, ByteSink out) {
    const auto framed = [&](ByteSpan plain) { return framer_ ? framer_->Append(plain, out) : out(plain); };
    return decompressor_ ? decompressor_->Feed(bytes, framed) : framed(bytes);
  }
  absl::Status End(ByteSink out) {
    const auto framed = [&](ByteSpan plain) { return framer_ ? framer_->Append(plain, out) : out(plain); };
    if (decompressor_) RETURN_IF_ERROR(decompressor_->Finish(framed));
    return framer_ ? framer_->End(out) : absl::OkStatus();
  }

 private:
  std::unique_ptr<Decompressor> decompressor_;
  std::optional<RecordFramer> framer_;
};

}  // namespace

/// Writes one epoch to a program. Returns Aborted if that has closed the FIFO, Cancelled after a stop.
class PipeFeeder::EpochWriter {
 public:
  EpochWriter(UniqueFd fifo, int stopped, uint64_t epoch) : fifo_(std::move(fifo)), stopped_(stopped) {
    fed_.epoch = epoch;
    // A larger pipe saves changes between the two processes; it is no matter if it stays as it is.
    (void)fcntl(fifo_.get(), F_SETPIPE_SZ, kPipeBytes);
  }

  absl::Status Write(ByteSpan bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = write(fifo_.get(), bytes.data(), bytes.size());
      if (wrote >= 0) {
        fed_.bytes += static_cast<uint64_t>(wrote);
        bytes = bytes.subspan(static_cast<size_t>(wrote));
        continue;
      }
      const int error = errno;
      if (error == EPIPE) return absl::AbortedError("the program has closed the pipe");
      if (error == EAGAIN) {
        RETURN_IF_ERROR(WaitForRoom());
      } else if (error != EINTR) {
        return ErrnoStatus(error, "the pipe", "writing");
      }
    }
    return absl::OkStatus();
  }

  FedEpoch& fed() { return fed_; }

 private:
  absl::Status WaitForRoom() const {
    pollfd waits[] = {{.fd = fifo_.get(), .events = POLLOUT, .revents = 0},
                      {.fd = stopped_, .events = POLLIN, .revents = 0}};
    if (poll(waits, std::size(waits), -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "the pipe", "waiting");
    if (waits[1].revents != 0) return absl::CancelledError("the pipe: interrupted");
    return absl::OkStatus();
  }

  const UniqueFd fifo_;
  const int stopped_;
  FedEpoch fed_;
};

PipeFeeder::PipeFeeder(ObjectStore& store, const Channel& channel, const ChannelItems& items, PipeFeederOptions options)
    : store_(store),
      channel_(channel),
      items_(items),
      options_(std::move(options)),
      memory_(options_.memory_bytes),
      stopped_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

std::string PipeFeeder::Fifo(uint64_t epoch) const {
  return fmt::format("{}_{}", options_.path, epoch);
}

absl::Status PipeFeeder::MakeFifo(uint64_t epoch) const {
  const std::string path = Fifo(epoch);
  if (IsFifo(path)) unlink(path.c_str());
  if (mkfifo(path.c_str(), 0600) == 0) return absl::OkStatus();
  if (errno == EEXIST) {
    return absl::FailedPreconditionError(fmt::format(
        "channel {}: {} is in the place of a pipe; remove it, or choose another --root", channel_.name, path));
  }
  return ErrnoStatus(errno, path, "making the pipe");
}

void PipeFeeder::RemoveFifos(uint64_t begin, uint64_t end) const {
  for (uint64_t epoch = begin; epoch < end; ++epoch) {
    if (const std::string path = Fifo(epoch); IsFifo(path)) unlink(path.c_str());
  }
}

absl::StatusOr<std::unique_ptr<PipeFeeder>> PipeFeeder::Make(ObjectStore& store, const Channel& channel,
                                                             const ChannelItems& items, PipeFeederOptions options) {
  std::unique_ptr<PipeFeeder> feeder(new PipeFeeder(store, channel, items, std::move(options)));
  if (!feeder->stopped_) return ErrnoStatus(errno, "an event", "making it");
  for (; feeder->end_ < feeder->options_.epochs; ++feeder->end_) RETURN_IF_ERROR(feeder->MakeFifo(feeder->end_));
  feeder->thread_ = std::thread([self = feeder.get()] { self->Run(); });
  return feeder;
}

PipeFeeder::~PipeFeeder() {
  stop_.request_stop();
  if (stopped_) eventfd_write(stopped_.get(), 1);
  if (thread_.joinable()) thread_.join();
  RemoveFifos(first_, end_);
}

// Opens the FIFO that a program has opened for reading, for writing.
absl::StatusOr<UniqueFd> PipeFeeder::WaitForReader(uint64_t* epoch) {
  for (;;) {
    for (*epoch = first_; *epoch < end_; ++*epoch) {
      UniqueFd fifo(open(Fifo(*epoch).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
      if (fifo) return fifo;
      // ENXIO: nobody reads. ENOENT: somebody has removed it; the program will miss it.
      if (errno != ENXIO && errno != ENOENT && errno != EINTR) return ErrnoStatus(errno, Fifo(*epoch), "opening");
    }
    pollfd stop{.fd = stopped_.get(), .events = POLLIN, .revents = 0};
    if (poll(&stop, 1, kTryMilliseconds) > 0) return absl::CancelledError("the pipe: interrupted");
  }
}

void PipeFeeder::Run() {
  for (;;) {
    uint64_t epoch = 0;
    absl::StatusOr<UniqueFd> fifo = WaitForReader(&epoch);
    if (absl::IsCancelled(fifo.status())) return;
    if (!fifo.ok()) return options_.failed(Annotate(fifo.status(), fmt::format("channel {}", channel_.name)));
    EpochWriter writer(*std::move(fifo), stopped_.get(), epoch);
    absl::Status status = absl::OkStatus();
    if (epoch + 1 == end_) {
      status = MakeFifo(end_);
      if (status.ok()) ++end_;
    }
    RemoveFifos(first_, epoch + 1);
    first_ = epoch + 1;
    if (status.ok()) status = Feed(writer);
    if (absl::IsCancelled(status)) return;
    if (status.ok() || absl::IsAborted(status)) {
      options_.fed(writer.fed());
      continue;
    }
    options_.failed(Annotate(status, fmt::format("channel {}, epoch {}", channel_.name, epoch)));
    pollfd stop{.fd = stopped_.get(), .events = POLLIN, .revents = 0};
    while (poll(&stop, 1, -1) < 0 && errno == EINTR) {
    }
    return;
  }
}

absl::Status PipeFeeder::Feed(EpochWriter& writer) {
  const Plan plan(items_.size(), PipeOrder(channel_), channel_.shuffle_seed.value_or(0), writer.fed().epoch);
  const uint64_t rank = channel_.sharded ? options_.rank : 0;
  const uint64_t world = channel_.sharded ? options_.world : 1;
  writer.fed().of = items_.size() > rank ? (items_.size() - rank + world - 1) / world : 0;

  // One cursor goes ahead, to ask for objects; the other one follows, to write what has come.
  Plan::Cursor ahead(plan, rank, world);
  std::span<const ChannelPart> asking;
  const auto source = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    for (;;) {
      while (!asking.empty()) {
        const ChannelPart& part = asking.front();
        asking = asking.subspan(1);
        if (part.is_object) return ObjectReader::All(part.Object());
      }
      if (ahead.done()) return std::nullopt;
      asking = items_[ahead.Next()];
    }
  };
  ObjectReader reader(store_, memory_, source, stop_.get_token());
  const auto out = [&](ByteSpan bytes) { return writer.Write(bytes); };
  for (Plan::Cursor now(plan, rank, world); !now.done(); ++writer.fed().items) {
    for (const ChannelPart& part : items_[now.Next()]) {
      PartStream stream(channel_, part);
      if (!part.is_object) RETURN_IF_ERROR(stream.Append(AsBytes(part.text), out));
      for (bool last = !part.is_object; !last;) {
        ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reader.Next());
        if (!piece) return absl::InternalError("a reader ended before its last request");
        const absl::Status status = stream.Append(piece->bytes, out);
        if (absl::IsDataLoss(status)) return Annotate(status, store_.Uri(part.text));
        RETURN_IF_ERROR(status);
        last = piece->last;
      }
      const absl::Status ended = stream.End(out);
      if (!ended.ok())
        return part.is_object && absl::IsDataLoss(ended) ? Annotate(ended, store_.Uri(part.text)) : ended;
    }
  }
  return absl::OkStatus();
}

void RemoveStalePipes(const std::string& path) {
  const fs::path base(path);
  const std::string name = base.filename();
  std::error_code error;
  for (fs::directory_iterator entry(base.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string other = entry->path().filename();
    const std::string_view number = std::string_view(other).substr(std::min(other.size(), name.size() + 1));
    const bool is_pipe = other.starts_with(name + "_") && !number.empty() &&
                         number.find_first_not_of("0123456789") == std::string_view::npos && IsFifo(entry->path());
    const bool is_state =
        other == fmt::format(".{}-pipe_mode-state", name) || other == fmt::format(".{}-pipe_mode-lock", name);
    std::error_code ignored;
    if (is_pipe || is_state) fs::remove(entry->path(), ignored);
  }
}

}  // namespace millrace
