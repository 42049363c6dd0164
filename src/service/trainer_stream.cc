#include "service/trainer_stream.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/log.h"
#include "base/zstd_block.h"
#include "service/stream_spec.h"

namespace millrace {

namespace {

// A session that is gone is opened again at the same worker; not again and again.
constexpr int kMaxGone = 3;
// A stream that waits for a worker checks this often whether the program waits for the stream, too long.
constexpr std::chrono::milliseconds kLook{100};

// Errors that another try at this worker would not change.
bool IsRefusal(int code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kFailedPrecondition:
      return true;
    default:
      return false;
  }
}

// The name becomes part of an address.
bool IsSessionName(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace

TrainerStream::TrainerStream(const StreamContext& context, uint64_t number, Reservation memory)
    : context_(context),
      number_(number),
      protocol_(context.window, context.widest, context.steps.end()),
      local_({.runtime = context.runtime,
              .source = context.source,
              .options = context.options,
              .steps = context.steps,
              .memory = context.local_memory,
              .with_function = context.spec.function.has_value()},
             number, std::move(memory)) {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "stream");
}

TrainerStream::~TrainerStream() {
  Stop();
  thread_.join();
}

void TrainerStream::Stop() {
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->stopping = true;
  mailbox_->changed.notify_all();
}

bool TrainerStream::Stopping() {
  const std::lock_guard lock(mailbox_->mutex);
  return mailbox_->stopping;
}

void TrainerStream::Run() {
  absl::Status status;
  try {
    status = Read();
  } catch (const std::exception& error) {  // std::bad_alloc
    status = absl::ResourceExhaustedError(fmt::format("the system refuses memory for a stream ({})", error.what()));
  }
  protocol_.Release();
  SettleHedge(HedgeEnd::kOver);
  for (ServiceRequest& request : protocol_.TakeRequests()) Send(std::move(request));
  local_.End();
  if (!status.ok()) context_.board.Fail(filled_, std::move(status));
}

absl::Status TrainerStream::Read() {
  while (!Stopping() && !protocol_.ended()) {
    std::deque<Event> events;
    {
      const std::lock_guard lock(mailbox_->mutex);
      events.swap(mailbox_->events);
    }
    for (Event& event : events) OnAnswer(std::move(event));
    SettleHedge(HedgeEnd::kOver);
    if (protocol_.state() == StreamProtocol::State::kUnplaced) Place();
    SendRequests();
    if (std::optional<ReceivedBatch> batch = protocol_.TakeNext()) {
      // The next requests are sent before the rows are copied, which may have to wait.
      SendRequests();
      if (!Deliver(std::move(batch->frame), SourceOfWorker(batch->source))) return absl::OkStatus();
      MoveIfBetter();
    } else if (protocol_.state() == StreamProtocol::State::kLocal) {
      RETURN_IF_ERROR(ReadLocal());
    } else {
      LeaveStraggler();
      if (protocol_.state() == StreamProtocol::State::kUnplaced) continue;
      SendRequests();
      if (protocol_.asks_nothing()) {
        context_.board.AwaitRoom(protocol_.missing(), kLook);
      } else {
        AwaitEvents();
      }
    }
  }
  return absl::OkStatus();
}

// A stream that is ahead of others asks for a batch when there is a slot for it, and not before.
void TrainerStream::SendRequests() {
  for (ServiceRequest& request : protocol_.TakeRequests(context_.board.Room())) Send(std::move(request));
}

void TrainerStream::AwaitEvents() {
  std::unique_lock lock(mailbox_->mutex);
  if (mailbox_->events.empty()) idle_since_ = Clock::now();
  mailbox_->changed.wait_for(lock, kLook, [this] { return mailbox_->stopping || !mailbox_->events.empty(); });
  idle_until_ = Clock::now();
}

absl::Status TrainerStream::ReadLocal() {
  ASSIGN_OR_RETURN(std::optional<LocalBatch> batch, local_.Next(protocol_.next()));
  if (!batch) return absl::OkStatus();
  context_.placement.OnBatch(kLocalSource, batch->waited, std::exchange(is_first_batch_, false), Clock::now());
  protocol_.SkipNext();
  const bool taken = Deliver(std::move(batch->frame), kLocalSource);
  batch.reset();  // its memory is the loader's, which may be closed now
  if (taken) MoveIfBetter();
  local_.OnTaken(Clock::now());  // not before the board took the rows: then the loader would have had time
  return absl::OkStatus();
}

bool TrainerStream::Deliver(WireBatch frame, size_t source) {
  if (!context_.board.Fill(protocol_.next() - 1, number_, std::move(frame), source)) return false;
  ++filled_;
  // After a hedge that was faster, others come from there.
  const bool streams = protocol_.state() == StreamProtocol::State::kStreaming;
  if (streams && std::exchange(source_, SourceOfWorker(protocol_.worker())) != SourceOfWorker(protocol_.worker())) {
    context_.board.SetSource(number_, source_);
  }
  return true;
}

// ---- Where it is read

void TrainerStream::Place() {
  const std::optional<size_t> worker = context_.placement.Take(number_, Clock::now());
  if (!worker && context_.placement.FirstTimeAlone(number_)) {
    Log(LogLevel::kWarning, "service",
        fmt::format("no worker serves {}; this process decodes until one does", context_.source.uri()));
  }
  protocol_.Assign(worker);
  BeginAt(worker ? SourceOfWorker(*worker) : kLocalSource, Clock::now());
}

// All measurements begin again.
void TrainerStream::BeginAt(size_t source, Clock::time_point since) {
  is_first_batch_ = true;
  first_sent_.clear();
  last_came_ = since;
  delay_ = {};
  source_ = source;
  context_.board.SetSource(number_, source_);
}

HttpEndpoint TrainerStream::EndpointOf(size_t worker) const {
  // Only addresses become workers.
  return ParseWorkerAddress(context_.placement.NameOf(worker)).value_or(HttpEndpoint());
}

// Absent workers may be back.
void TrainerStream::Probe() {
  Placement& placement = context_.placement;
  for (const size_t worker : placement.ToProbe(Clock::now())) {
    context_.calls.Start(
        EndpointOf(worker), "GET", "/millrace/hello", "", 0, [&placement, worker](const WorkerAnswer& answer) {
          const bool is_back = answer.lost.empty() && answer.is_worker;
          is_back ? placement.OnPresent(worker, Clock::now()) : placement.OnAbsent(worker, Clock::now());
        });
  }
}

void TrainerStream::MoveIfBetter() {
  Probe();
  if (protocol_.state() == StreamProtocol::State::kUnplaced) return;
  if (context_.placement.ShouldMove(number_, Clock::now())) Leave();
}

void TrainerStream::Leave() {
  protocol_.Release();
  SettleHedge(HedgeEnd::kOver);
  CancelCalls();
  local_.Close();
}

// ---- A worker that takes long

// When the worker has said something, or was asked; now, if it owes no answer.
TrainerStream::Clock::time_point TrainerStream::LastHeard(Clock::time_point now) const {
  std::optional<Clock::time_point> last;
  const auto look = [&](const Call& each) {
    if (each.attempt != protocol_.attempt()) return;
    if (const std::shared_ptr<WorkerCall> call = each.call.lock())
      last = std::max(last.value_or(call->heard()), call->heard());
  };
  look(opening_);
  std::for_each(calls_.begin(), calls_.end(), look);
  return last.value_or(now);
}

void TrainerStream::LeaveStraggler() {
  const std::optional<StepBoard::Wait> wait = context_.board.WaitFor(protocol_.missing(), number_);
  if (!wait) return;
  const Clock::time_point now = Clock::now();
  const Silence::Duration silent = silence_.Look(LastHeard(now), now);
  if (context_.placement.IsLost(number_, silent, protocol_.hedged(), now)) {
    const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(silent);
    const std::string why =
        fmt::format("it does not answer (not a byte within {} ms, while the program waits)", whole.count());
    const ServiceRequest any{.worker = protocol_.worker(), .attempt = protocol_.attempt()};
    return Fail(any, StreamFailure::kLost, why);
  }
  if (protocol_.hedged()) return;
  if (context_.placement.ShouldLeave(number_, wait->since, now)) return Leave();
  if (!wait->alone) return;
  const std::optional<size_t> second = context_.placement.Hedge(number_, is_first_batch_, *wait->alone, now);
  if (!second) return;
  holds_hedge_ = true;
  hedged_at_ = now;
  protocol_.Hedge(*second);
}

// A second opening that has ended makes room for that of another stream.
void TrainerStream::SettleHedge(HedgeEnd end) {
  if (!holds_hedge_ || protocol_.hedged()) return;
  holds_hedge_ = false;
  CancelCalls(protocol_.attempt());
  switch (end) {
    case HedgeEnd::kWon:
      return context_.placement.OnHedgeWon(number_, protocol_.worker(), Clock::now());
    case HedgeEnd::kLost:
      return context_.placement.OnHedgeLost(number_, Clock::now());
    case HedgeEnd::kStays:
      return context_.placement.OnHedgeStays(number_, protocol_.worker(), Clock::now());
    case HedgeEnd::kOver:
      return context_.placement.OnHedgeOver();
  }
}

// The session is not used any more. If there is a second one, the stream continues with it: the work that the other
// worker has done by now is not repeated. Returns false if the session was over.
bool TrainerStream::EndSession(uint64_t attempt) {
  if (protocol_.EndHedge(attempt)) {
    SettleHedge(HedgeEnd::kLost);
    return true;
  }
  if (!protocol_.OnFailure(attempt)) return false;
  if (protocol_.state() == StreamProtocol::State::kUnplaced) {
    CancelCalls();
    return true;
  }
  SettleHedge(HedgeEnd::kStays);
  opening_ = hedge_opening_;
  BeginAt(SourceOfWorker(protocol_.worker()), hedged_at_);
  return true;
}

void TrainerStream::Fail(const ServiceRequest& request, StreamFailure failure, const std::string& reason) {
  if (!EndSession(request.attempt)) return;
  const std::string worker = context_.placement.NameOf(request.worker);
  const bool should_tell = context_.placement.OnFailure(request.worker, number_, failure, reason, Clock::now());
  const LogLevel level = should_tell ? LogLevel::kWarning : LogLevel::kInfo;
  if (!LogEnabled(level)) return;
  Log(level, "service",
      fmt::format("worker {}: {}; until that changes, other workers or this process decode in its place", worker,
                  reason));
}

// ---- Requests and answers

void TrainerStream::CancelCalls(uint64_t but) {
  const auto ended = std::stable_partition(calls_.begin(), calls_.end(),
                                           [but](const Call& call) { return but != 0 && call.attempt == but; });
  std::for_each(ended, calls_.end(), [](const Call& call) {
    if (const std::shared_ptr<WorkerCall> running = call.call.lock()) running->Cancel();
  });
  calls_.erase(ended, calls_.end());
  // The rows that they have brought hold slots of the board.
  const std::lock_guard lock(mailbox_->mutex);
  std::erase_if(mailbox_->attempts, [but](uint64_t attempt) { return attempt != but; });
  std::erase_if(mailbox_->events,
                [but](const Event& event) { return event.is_batch() && event.request.attempt != but; });
}

void TrainerStream::Send(ServiceRequest request) {
  const HttpEndpoint worker = EndpointOf(request.worker);
  std::string body;
  std::string target;
  uint64_t limit = 0;
  switch (request.kind) {
    case ServiceRequest::Kind::kOpen: {
      StreamSpec spec = context_.spec;
      const StreamSteps::Place place = context_.steps.PlaceOf(request.step).value_or(context_.steps.start());
      spec.options = context_.steps.OptionsOf(context_.options, number_, place);
      spec.options.memory_bytes = context_.worker_memory;
      if (spec.function) spec.function->stream = number_;
      body = EncodeStreamSpec(spec);
      target = "/millrace/open";
      break;
    }
    case ServiceRequest::Kind::kNext:
      target = fmt::format("/millrace/next?session={}&sequence={}", request.session, request.sequence);
      limit = context_.frame_limit;
      break;
    case ServiceRequest::Kind::kClose:
      target = fmt::format("/millrace/close?session={}", request.session);
      break;
  }
  const bool is_next = request.kind == ServiceRequest::Kind::kNext;
  const Clock::time_point sent = Clock::now();
  if (is_next && request.attempt == protocol_.attempt()) first_sent_.emplace(request.step, sent);
  if (is_next) {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->attempts.insert(request.attempt);
  }
  WorkerCalls::FindRows find_rows = [this_board = &context_.board, step = request.step, stream = number_] {
    return this_board->Claim(step, stream);
  };
  const std::shared_ptr<WorkerCall> call = context_.calls.Start(
      worker, is_next ? "GET" : "POST", std::move(target), std::move(body), limit,
      [mailbox = mailbox_, request, sent](WorkerAnswer answer) {
        Event event{request, std::move(answer), sent, Clock::now()};
        const std::lock_guard lock(mailbox->mutex);
        if (event.is_batch() && !mailbox->attempts.contains(request.attempt)) return;
        mailbox->events.push_back(std::move(event));
        mailbox->changed.notify_all();
      },
      is_next ? std::move(find_rows) : nullptr);
  // An opening is not cancelled: its session may be there, and has to be closed.
  if (request.kind == ServiceRequest::Kind::kOpen) {
    (request.attempt == protocol_.attempt() ? opening_ : hedge_opening_) = {request.attempt, call};
  }
  if (!is_next) return;
  std::erase_if(calls_, [](const Call& each) { return each.call.expired(); });
  calls_.push_back({request.attempt, call});
}

void TrainerStream::OnAnswer(Event event) {
  const ServiceRequest& request = event.request;
  const WorkerAnswer& answer = event.answer;
  if (request.kind == ServiceRequest::Kind::kClose) {
    // One that was overtaken, say: it is asked for nothing else meanwhile that would show that it is gone.
    if (!answer.lost.empty()) context_.placement.OnNoAnswer(request.worker, answer.lost, event.sent, Clock::now());
    return;
  }
  if (!answer.lost.empty()) {
    return Fail(request, answer.is_refused ? StreamFailure::kRefused : StreamFailure::kLost, answer.lost);
  }
  if (!answer.is_worker) {
    constexpr size_t kMost = 200;
    const std::string text = absl::CHexEscape(answer.text.substr(0, kMost));
    return Fail(request, StreamFailure::kRefused,
                fmt::format("the server there is not a worker{}{}", text.empty() ? "" : ": ", text));
  }
  switch (answer.status) {
    case 200:
      if (answer.memory != nullptr) return OnBatch(std::move(event));
      break;
    case 201:
      if (!IsSessionName(answer.text)) break;
      if (!protocol_.OnOpened(request.attempt, answer.text)) {  // too late: nobody else would close it soon
        Send({.kind = ServiceRequest::Kind::kClose, .worker = request.worker, .session = answer.text});
      }
      return;
    case 204:
      protocol_.OnNotYet(request.attempt, request.step);
      return;
    case 404:
      // The session was closed, since nothing was asked for a while; or the worker was started again.
      if (gone_ + 1 < kMaxGone) {
        if (EndSession(request.attempt)) ++gone_;
        return;
      }
      return Fail(request, StreamFailure::kLost, "its sessions end at once");
    case 503:
      return Fail(request, StreamFailure::kStream, answer.text);
    case 400:
    case 401:
    case 413:
    case 426:
      return Fail(request, StreamFailure::kRefused, answer.text);
    default:
      break;
  }
  const bool is_refusal = answer.code && IsRefusal(*answer.code);
  Fail(request, is_refusal ? StreamFailure::kRefused : StreamFailure::kStream,
       answer.code ? answer.text : fmt::format("it answers with status {}", answer.status));
}

absl::StatusOr<WireBatch> TrainerStream::Unpack(WorkerAnswer* answer) const {
  if (answer->rows != nullptr) return ParsePlacedFrame(answer->bytes, std::move(answer->rows), answer->crc);
  if (answer->plain_bytes == 0) return ParseFrame(answer->bytes, answer->crc);
  const absl::Status damaged = absl::DataLossError("a compressed batch arrived damaged");
  if (answer->plain_bytes > context_.frame_limit) return damaged;
  auto plain = std::make_shared<Buffer>(answer->plain_bytes);
  if (!DecompressBlock(answer->bytes, plain->span())) return damaged;
  answer->bytes = plain->span();
  answer->memory = std::move(plain);
  return ParseFrame(answer->bytes);
}

void TrainerStream::OnBatch(Event event) {
  const ServiceRequest& request = event.request;
  absl::StatusOr<WireBatch> frame = Unpack(&event.answer);
  absl::Status status = frame.status();
  const std::optional<StreamSteps::Place> place = context_.steps.PlaceOf(request.step);
  if (frame.ok() && (frame->facts.sequence != request.sequence || !place)) {
    status = absl::DataLossError("a batch came that was not asked for");
  } else if (frame.ok()) {
    status = context_.steps.Check(*place, number_, *frame);
  }
  if (!status.ok()) return Fail(request, StreamFailure::kLost, std::string(ToStd(status.message())));
  const uint64_t before = protocol_.attempt();
  const bool was_hedged = protocol_.hedged();
  const bool of_hedge = request.attempt != before;
  const bool was_awaited = IsAwaitedBatch(event);
  if (was_awaited && !of_hedge && !is_first_batch_) WidenIfDelayed(event);
  std::shared_ptr<void> memory = std::move(event.answer.memory);
  KeepArrays(&*frame, &memory);
  ReceivedBatch batch{.memory = std::move(memory), .frame = *std::move(frame), .source = request.worker};
  if (!protocol_.OnBatch(request.attempt, request.step, std::move(batch))) return;
  gone_ = 0;
  MeasureBatch(event, was_awaited, of_hedge);
  if (protocol_.attempt() != before) {
    SettleHedge(HedgeEnd::kWon);
  } else if (was_hedged) {
    SettleHedge(HedgeEnd::kLost);
  }
}

// Returns whether the stream had nothing to do but to wait for this batch when it came.
bool TrainerStream::IsAwaitedBatch(const Event& event) const {
  return event.request.step == protocol_.next() && idle_since_ <= event.came && event.came <= idle_until_;
}

void TrainerStream::MeasureBatch(const Event& event, bool was_awaited, bool of_hedge) {
  const bool opens = of_hedge || is_first_batch_;
  const auto asked = first_sent_.find(event.request.step);
  Clock::time_point from = std::max(last_came_, asked == first_sent_.end() ? event.sent : asked->second);
  if (opens) from = of_hedge ? hedged_at_ : last_came_;  // since the session is being opened
  std::optional<Clock::duration> waited;
  if (was_awaited || opens) waited = event.came - from;
  context_.placement.OnBatch(SourceOfWorker(event.request.worker), waited, opens, event.came);
  is_first_batch_ = false;
  last_came_ = std::max(last_came_, event.came);
  if (of_hedge) return first_sent_.clear();  // they were asked for in the other session
  first_sent_.erase(event.request.step);
}

// With one request more in flight, the next batches come sooner.
void TrainerStream::WidenIfDelayed(const Event& event) {
  const WorkerAnswer& answer = event.answer;
  const bool has_room = delay_.Look({.on_new_connection = answer.on_new_connection,
                                     .sent = event.sent,
                                     .asked = answer.asked,
                                     .waited = answer.waited,
                                     .begun = answer.begun,
                                     .came = event.came});
  if (has_room) protocol_.Widen();
}

}  // namespace millrace
