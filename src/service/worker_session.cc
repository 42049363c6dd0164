#include "service/worker_session.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <variant>

#include "absl/cleanup/cleanup.h"
#include "base/size.h"
#include "base/zstd_block.h"
#include "service/frame.h"
#include "service/worker_calls.h"

namespace millrace {

namespace {

// This is well below the time that a trainer waits.
constexpr std::chrono::milliseconds kNotYetAfter{400};
// A session notices within this time that it was stopped.
constexpr std::chrono::milliseconds kSessionSlice{50};
constexpr size_t kMaxWaiting = 64;
// A value below this is copied to what is sent before it.
constexpr size_t kLeastSentAlone = size_t{2} << 10;
// A session waits this long for the memory of those that were closed: while they end, and a little longer.
constexpr std::chrono::milliseconds kMakeRoom{10'000};
constexpr std::chrono::milliseconds kSentWithin{500};
// This bounds the functions' results for a stream's batches: so many of them exist at a time, one of which is being
// sent.
constexpr size_t kMostResults = 2;

}  // namespace

HttpReply WorkerReply(int status, std::string text) {
  HttpReply reply;
  reply.status = status;
  reply.headers.Add(kVersionHeader, std::to_string(kServiceVersion));
  if (!text.empty()) reply.body.emplace_back(SendText{std::move(text)});
  return reply;
}

HttpReply WorkerReply(const absl::Status& status) {
  constexpr size_t kMaxMessage = 4096;
  HttpReply reply = WorkerReply(500, std::string(ToStd(status.message())).substr(0, kMaxMessage));
  reply.headers.Add(kStatusHeader, std::to_string(static_cast<int>(status.code())));
  return reply;
}

// ---- A session

WorkerSession::WorkerSession(OpenDatasets& datasets, WorkerCounts& counts, std::string spec, Reservation memory,
                             std::vector<std::weak_ptr<WorkerSession>> ending, Time now)
    : datasets_(datasets),
      counts_(counts),
      spec_(std::move(spec)),
      spec_memory_(std::move(memory)),
      ending_(std::move(ending)),
      last_used_(now) {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "session");
}

WorkerSession::~WorkerSession() {
  if (thread_.joinable()) Join();
}

void WorkerSession::Join() {
  Stop();
  thread_.join();
}

void WorkerSession::Stop() {
  stop_.request_stop();
  const Lock lock(mutex_);
  asked_.notify_all();
}

bool WorkerSession::stopped() const {
  const Lock lock(mutex_);
  return stopped_;
}

WorkerSession::Time WorkerSession::last_used() const {
  const Lock lock(mutex_);
  return last_used_;
}

void WorkerSession::Ask(uint64_t sequence, HttpResponder responder, Time now) {
  absl::Status end;
  decltype(waiting_)::node_type replaced;  // ends without the lock
  {
    const Lock lock(mutex_);
    last_used_ = now;
    end = end_;
    if (end.ok() && sequence >= next_ && waiting_.size() < kMaxWaiting) {
      // If it waits already, the connection of that request has broken, which ends with its responder.
      if (waiting_.empty()) awaited_counted_ = now;
      replaced = waiting_.extract(sequence);
      waiting_.emplace(sequence, Waiting{std::move(responder), now});
      asked_.notify_all();
      return;
    }
  }
  responder.Send(end.ok() ? WorkerReply(404, "the batch was asked for before") : WorkerReply(end));
}

void WorkerSession::Tick(Time now) {
  std::vector<HttpResponder> late;
  {
    const Lock lock(mutex_);
    if (!waiting_.empty()) last_used_ = now;
    CountAwaited(now);
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (now - at->second.since < kNotYetAfter) {
        ++at;
        continue;
      }
      late.push_back(std::move(at->second.responder));
      at = waiting_.erase(at);
    }
  }
  for (HttpResponder& responder : late) responder.Send(WorkerReply(204, ""));
}

// While requests wait, and not for the way.
void WorkerSession::CountAwaited(Time now) {
  if (waiting_.empty() || now < awaited_counted_) return;
  const Time::duration passed = now - std::exchange(awaited_counted_, now);
  if (awaits_turn_) return;
  uncounted_ += passed;
  const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(uncounted_);
  uncounted_ -= whole;
  counts_.awaited_ms += static_cast<uint64_t>(whole.count());
}

// ---- Its thread

void WorkerSession::Run() {
  absl::Status status;
  try {
    status = Serve();
  } catch (const std::exception& error) {  // std::bad_alloc, or no thread
    status = absl::ResourceExhaustedError(fmt::format("the worker has too little memory ({})", error.what()));
  }
  AnswerAll(status.ok() ? absl::OutOfRangeError("the stream has no further batch") : status);
}

struct WorkerSession::Supply {
  const Source& source;
  LoaderOptions options;
  const std::optional<RowFunction> function;
  const std::string kept_name;  // "": the worker keeps none of these batches
  Position at;                  // where the next batch begins
  Position loader_at{};         // the same for the loader
  std::unique_ptr<Loader> loader{};
  std::unique_ptr<LoaderTotals::Entry> counted{};  // of the loader, and gone before it
};

absl::Status WorkerSession::Serve() {
  absl::StatusOr<StreamSpec> spec = ParseStreamSpec(AsBytes(spec_));
  RETURN_IF_ERROR(spec.status());
  std::string().swap(spec_);
  ASSIGN_OR_RETURN(const Source source, OpenSource(*spec));
  RETURN_IF_ERROR(CheckFunction(*spec));
  const absl::Cleanup gone = [this] { datasets_.releases()->Tell(); };  // the loader, which goes before this
  Supply supply{.source = source,
                .options = spec->options,
                .function = spec->function,
                .kept_name = datasets_.kept().NameOf(*spec),
                .at = spec->options.start.value_or(Position{})};
  supply.options.cache = datasets_.cache();
  spec->parts.clear();
  if (!datasets_.kept().Find(supply.kept_name, supply.at, std::chrono::steady_clock::now())) {
    RETURN_IF_ERROR(Begin(supply));  // reads ahead of the first request
  }
  spec_memory_ = Reservation();
  while (AwaitRequest()) {
    ASSIGN_OR_RETURN(std::optional<Supplied> supplied, Next(supply));
    if (!supplied) return absl::OkStatus();
    const uint64_t rows = supplied->batch.size;
    // The reply has all of the batch: what is left of it here holds nothing.
    Answer(ReplyOf(*std::move(supplied), spec->compress), rows);
  }
  return absl::CancelledError("the session has ended");
}

absl::Status WorkerSession::Begin(Supply& supply) const {
  supply.counted.reset();
  supply.loader.reset();
  datasets_.releases()->Tell();
  supply.options.start = supply.loader_at = supply.at;
  ASSIGN_OR_RETURN(supply.loader, MakeLoader(supply.source, supply.options));
  supply.counted = counts_.loaders.Count(supply.source.uri(), *supply.loader);
  return absl::OkStatus();
}

// The loader comes to where the next batch begins. Two sessions of one stream that keep batches for each other take
// turns in being first.
absl::Status WorkerSession::CatchUp(Supply& supply) {
  const uint64_t step = supply.options.batch * supply.options.world;
  const auto is_near = [&] {
    return supply.loader != nullptr && supply.loader_at.epoch == supply.at.epoch &&
           supply.loader_at.consumed <= supply.at.consumed &&
           (supply.at.consumed - supply.loader_at.consumed) / step <= kMostSkipped;
  };
  while (is_near() && supply.loader_at.consumed < supply.at.consumed) {
    ASSIGN_OR_RETURN(std::optional<Batch> batch, NextBatch(*supply.loader));
    if (!batch) break;
    supply.loader_at = batch->position;
  }
  return is_near() && supply.loader_at.consumed == supply.at.consumed ? absl::OkStatus() : Begin(supply);
}

// Returns nullopt after the last batch.
absl::StatusOr<std::optional<WorkerSession::Supplied>> WorkerSession::Next(Supply& supply) {
  const Time now = std::chrono::steady_clock::now();
  const uint64_t epochs = supply.options.epochs;
  if (epochs > 0 && supply.at.epoch >= epochs) return std::nullopt;
  KeptBatches& kept = datasets_.kept();
  std::optional<Supplied> supplied = kept.Find(supply.kept_name, supply.at, now);
  if (!supplied) {
    RETURN_IF_ERROR(CatchUp(supply));
    ASSIGN_OR_RETURN(std::optional<Batch> batch, NextBatch(*supply.loader));
    if (!batch) return std::nullopt;
    supply.loader_at = batch->position;
    std::erase_if(sent_, [](const std::weak_ptr<void>& each) { return each.expired(); });
    batch->memory = Releases::Watch(datasets_.releases(), std::move(batch->memory));
    sent_.push_back(batch->memory);
    RETURN_IF_ERROR(ApplyFunction(supply, &*batch));
    const uint32_t crc = ContentsCrc(*batch);
    kept.Keep(supply.kept_name, supply.at, *batch, crc, now);
    supplied = Supplied{*std::move(batch), crc};
  }
  supply.at = supplied->batch.position;
  return supplied;
}

absl::Status WorkerSession::CheckFunction(const StreamSpec& spec) const {
  if (!spec.function) return absl::OkStatus();
  if (datasets_.functions() != nullptr) return datasets_.functions()->Check(*spec.function);
  return absl::FailedPreconditionError(
      fmt::format("this worker runs no functions of trainers, and the trainer wants '{}'; start workers with "
                  "`python -m millrace.worker --allow-functions MODULE`",
                  spec.function->name));
}

// Reserves memory for what a function makes of a batch, twice and at once, so that no two sessions wait for what the
// other one has. There is some soon if others of this stream are being sent.
absl::StatusOr<WorkerSession::ResultMemory> WorkerSession::ReserveResults(uint64_t bytes) {
  Time deadline = std::chrono::steady_clock::now() + kSentWithin;
  for (;;) {
    const uint64_t seen = datasets_.releases()->count();
    std::erase_if(results_, [](const std::weak_ptr<void>& each) { return each.expired(); });
    if (results_.size() < kMostResults) {
      ResultMemory memory{datasets_.runtime().memory().TryReserve(bytes), {}};
      if (memory.sent) memory.made = datasets_.runtime().memory().TryReserve(bytes);
      if (memory.made) return memory;
    }
    const Time now = std::chrono::steady_clock::now();
    if (!results_.empty()) deadline = now + kSentWithin;  // those are being sent
    if (now >= deadline) break;
    if (stop_.stop_requested()) return absl::CancelledError("the session has ended");
    datasets_.releases()->Await(seen, deadline - now, stop_.get_token());
  }
  return absl::ResourceExhaustedError(fmt::format(
      "the results of a function for a batch may take {}, which is not left of the worker's memory; give it "
      "more (--memory), or the trainer smaller batches",
      FormatSize(bytes)));
}

// The batch then holds what the function has made of its rows, in place of these.
absl::Status WorkerSession::ApplyFunction(const Supply& supply, Batch* batch) {
  if (!supply.function) return absl::OkStatus();
  /// Goes when the batch has been sent.
  struct Results {
    Reservation memory;
    std::shared_ptr<void> batch;
  };
  const auto results = std::make_shared<Results>();
  const absl::Cleanup made_gone = [this] { datasets_.releases()->Tell(); };  // which goes with `memory`, before this
  ASSIGN_OR_RETURN(ResultMemory memory, ReserveResults(supply.function->most_bytes));
  results->memory = std::move(memory.sent);
  const uint64_t consumed = batch->epoch == supply.at.epoch ? supply.at.consumed : 0;
  const BatchShape& shape = supply.loader->shapes()[batch->shape];
  std::vector<BatchValues> empty;
  for (const BatchValues& values : batch->values) {
    empty.push_back({values.name, values.kind, std::vector<std::string>(batch->size)});
  }
  std::vector<BatchValues> values = std::exchange(batch->values, std::move(empty));
  Batch given = *batch;  // of the same arrays
  given.values = std::move(values);
  ASSIGN_OR_RETURN(std::vector<std::string> rows,
                   datasets_.functions()->Apply(*supply.function, shape, consumed, std::move(given)));
  if (rows.size() != batch->size) return absl::InternalError("a function has made other rows than it was given");
  for (BatchArray& array : batch->arrays) {
    if (!IsOriginArray(array.name)) array.bytes = {};
  }
  batch->values.push_back({std::string(kFunctionEntry), BatchField::Kind::kBytes, std::move(rows)});
  results->batch = std::move(batch->memory);
  batch->memory = Releases::Watch(datasets_.releases(), results);
  results_.push_back(batch->memory);
  return absl::OkStatus();
}

// The bytes are sent from their place in memory, without a copy.
HttpReply WorkerSession::ReplyOf(Supplied supplied, bool compress) const {
  std::string text = EncodeFrame(next_, supplied.batch, supplied.crc);
  uint64_t facts = text.size();
  const auto batch = std::make_shared<Batch>(std::move(supplied.batch));
  HttpReply reply = WorkerReply(200, "");
  for (BatchValues& values : batch->values) {
    for (std::string& row : values.rows) {
      facts += row.size();
      if (row.size() < kLeastSentAlone) {
        text += row;
        row = std::string();
        continue;
      }
      if (!text.empty()) reply.body.emplace_back(SendText{std::exchange(text, {})});
      reply.body.emplace_back(SendBytes{AsBytes(row), batch});
    }
  }
  if (!text.empty()) reply.body.emplace_back(SendText{std::move(text)});
  for (const BatchArray& array : batch->arrays) reply.body.emplace_back(SendBytes{array.bytes, batch});
  // Texts are copies, and their memory is that of the batch until they have been sent.
  if (batch->arrays.empty()) reply.body.emplace_back(SendBytes{{}, batch});
  if (!compress || !Compress(&reply)) reply.headers.Add(kFactsHeader, std::to_string(facts));
  return reply;
}

// Returns false if it does not get smaller, or there is no memory for it; then it is sent as it is.
bool WorkerSession::Compress(HttpReply* reply) const {
  struct Packed {
    Reservation memory;
    Buffer bytes;
  };
  std::vector<ByteSpan> pieces;
  for (const ReplyStep& step : reply->body) {
    const auto* const text = std::get_if<SendText>(&step);
    pieces.push_back(text != nullptr ? AsBytes(text->text) : std::get<SendBytes>(step).bytes);
  }
  const uint64_t bytes = BodySize(reply->body);
  if (bytes > INT32_MAX) return false;
  auto packed = std::make_shared<Packed>();
  packed->memory = datasets_.runtime().memory().TryReserve(2 * bytes);
  if (!packed->memory) return false;
  std::optional<Buffer> made = CompressBlock(pieces);
  if (!made) return false;
  packed->bytes = *std::move(made);
  reply->headers.Add(kPlainBytesHeader, std::to_string(bytes));
  reply->body.clear();
  reply->body.emplace_back(SendBytes{packed->bytes.span(), Releases::Watch(datasets_.releases(), packed)});
  return true;
}

absl::StatusOr<std::unique_ptr<Loader>> WorkerSession::MakeLoader(const Source& source,
                                                                  const LoaderOptions& options) const {
  // Batches of a session that has ended, or of the loader before, may still be on their way for a moment.
  const auto is_there = [](const auto& each) { return !each.expired(); };
  const auto any_sent = [&] { return std::any_of(sent_.begin(), sent_.end(), is_there); };
  const Time begun = std::chrono::steady_clock::now();
  Time::duration max_wait = ending_.empty() && !any_sent() ? Time::duration::zero() : kSentWithin;
  for (;;) {
    const uint64_t seen = datasets_.releases()->count();
    absl::StatusOr<std::unique_ptr<Loader>> made = Loader::Create(datasets_.runtime(), source, options);
    const bool any = any_sent() || std::any_of(ending_.begin(), ending_.end(), is_there);
    const Time::duration waited = std::chrono::steady_clock::now() - begun;
    if (any && waited < kMakeRoom) max_wait = waited + kSentWithin;
    if (!absl::IsResourceExhausted(made.status()) || waited >= max_wait || stop_.stop_requested()) return made;
    datasets_.releases()->Await(seen, max_wait - waited, stop_.get_token());
  }
}

absl::StatusOr<Source> WorkerSession::OpenSource(const StreamSpec& spec) {
  std::vector<Subset> parts;
  for (const StreamSpec::Part& part : spec.parts) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, datasets_.Open(part, stop_.get_token()));
    opened_.push_back(dataset);
    Subset subset = *dataset;
    if (part.members) {
      ASSIGN_OR_RETURN(Selection members, MembersOf(part));
      Filter filter;
      filter.samples = std::make_shared<const Selection>(std::move(members));
      ASSIGN_OR_RETURN(subset, Where(datasets_.runtime(), subset, filter));
    }
    parts.push_back(std::move(subset));
  }
  Source samples(std::move(parts));
  if (!spec.tokens) return samples;
  RETURN_IF_ERROR(spec.tokens->Check());
  return Source::OfRows(datasets_.stores(), samples, *spec.tokens, {.stop = datasets_.stop_token()});
}

// Waits until the request for the next batch is there; returns false if the session has been stopped.
bool WorkerSession::AwaitRequest() {
  Lock lock(mutex_);
  asked_.wait(lock, [this] { return stop_.stop_requested() || waiting_.contains(next_); });
  return !stop_.stop_requested();
}

absl::StatusOr<std::optional<Batch>> WorkerSession::NextBatch(Loader& loader) {
  for (;;) {
    while (!loader.WaitReady(kSessionSlice)) {
      if (stop_.stop_requested()) return absl::CancelledError("the session has ended");
    }
    const uint64_t seen = datasets_.releases()->count();
    absl::StatusOr<std::optional<Batch>> batch = loader.Next();
    const bool sending = datasets_.releases()->count() != seen ||
                         std::any_of(sent_.begin(), sent_.end(), [](const auto& each) { return !each.expired(); });
    if (!absl::IsResourceExhausted(batch.status()) || !sending) return batch;
    // Batches that are being sent hold all slots.
    if (stop_.stop_requested()) return absl::CancelledError("the session has ended");
    datasets_.releases()->Await(seen, kSentWithin, stop_.get_token());
  }
}

// Waits before a batch of so many bytes is sent. Requests wait for the network path meanwhile, and not for this
// worker's CPUs or store.
std::shared_ptr<void> WorkerSession::AwaitTurn(uint64_t bytes) {
  const auto await = [this](bool begins) {
    const Lock lock(mutex_);
    CountAwaited(std::chrono::steady_clock::now());
    awaits_turn_ = begins;
  };
  await(true);
  std::shared_ptr<void> turn = turns_.Begin(bytes);
  await(false);
  return turn;
}

// Answers with the next batch, of so many rows. Its request may have been answered "not yet" meanwhile, and comes
// again; then the batch after it may not wait for this one.
void WorkerSession::Answer(HttpReply reply, uint64_t rows) {
  const uint64_t bytes = BodySize(reply.body);
  reply.body.emplace_back(SendBytes{{}, AwaitTurn(bytes)});
  Lock lock(mutex_);
  asked_.wait(lock, [this] { return stop_.stop_requested() || waiting_.contains(next_); });
  if (stop_.stop_requested()) return;
  const Time now = std::chrono::steady_clock::now();
  CountAwaited(now);
  auto asked = waiting_.extract(next_);
  ++next_;
  lock.unlock();
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(now - asked.mapped().since);
  reply.headers.Add(kWaitedHeader, std::to_string(waited.count()));
  // It is counted before the trainer has it, so that the trainer never knows more than the counts.
  ++counts_.batches;
  counts_.rows += rows;
  counts_.bytes += bytes;
  asked.mapped().responder.Send(std::move(reply));
}

void WorkerSession::AnswerAll(const absl::Status& status) {
  std::map<uint64_t, Waiting> waiting;
  {
    const Lock lock(mutex_);
    end_ = status;
    stopped_ = true;
    waiting.swap(waiting_);
  }
  for (auto& [sequence, each] : waiting) each.responder.Send(WorkerReply(status));
}

}  // namespace millrace
