#include "pipeline/engine.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <new>

#include "base/size.h"

namespace millrace {

namespace {

// The walker gets this many events at once while the CPUs have enough to do: to wake it for each costs more than the
// event.
constexpr size_t kNewsAtOnce = 8;

bool Later(const std::unique_ptr<Walker::Task>& a, const std::unique_ptr<Walker::Task>& b) {
  return a->priority() > b->priority();
}

}  // namespace

Engine::Engine(Runtime& runtime, LoaderPlan plan, EngineMemory memory)
    : runtime_(runtime),
      plan_(std::move(plan)),
      shapes_(ShapesOf(plan_)),
      reads_(plan_.source, plan_.options.cache),
      fetch_memory_(std::move(memory.fetch)),
      share_(std::move(memory.share)),
      decode_memory_(runtime.decode_memory(), runtime.memory().limit()),
      outlet_(mutex_,
              {.slot_bytes = plan_.slot_bytes,
               .slots = plan_.slots,
               .budget = fmt::format("memory budget of {}", FormatSize(plan_.options.memory_bytes)),
               .parts = plan_.source.parts().size(),
               .start = plan_.options.start.value_or(Position{0, 0, plan_.fingerprint}),
               .log_damage = plan_.options.log_damage},
              std::move(memory.slots),
              {.cause = [this] { return wait_.Now(); },
               .taken =
                   [this](const Batch& batch) {
                     news_.value_bytes += batch.value_bytes;
                     Tell();
                   },
               .returned = [this] { Tell(); }}),
      walker_(
          plan_, runtime.cpu().threads(), &outlet_.ring(), [this](auto request) { Send(std::move(request)); },
          stop_.get_token()) {
  thread_ = std::thread([this] { Walk(); });
  pthread_setname_np(thread_.native_handle(), "walker");
}

Engine::~Engine() {
  stop_.request_stop();
  {
    const Lock lock(mutex_);
    news_.stopping = true;
    Tell();
  }
  thread_.join();
}

// ---- The walker's thread

void Engine::Walk() {
  for (bool more = true;;) {
    News news = AwaitNews(!more);
    const bool stopping = news.stopping;
    more = Round(std::move(news));
    if (stopping && walker_.idle()) return;
  }
}

Engine::News Engine::AwaitNews(bool wait) {
  Lock lock(mutex_);
  if (wait) told_.wait(lock, [this] { return has_news_.load(std::memory_order_relaxed); });
  has_news_.store(false, std::memory_order_relaxed);
  News news;
  std::swap(news.fetched, news_.fetched);
  std::swap(news.decoded, news_.decoded);
  std::swap(news.value_bytes, news_.value_bytes);
  news.untaken = outlet_.untaken();
  news.stopping = news_.stopping;
  return news;
}

// Executes a round. Returns true if there is more to do at once.
bool Engine::Round(News news) {
  bool more = false;
  const auto guarded = [this](auto work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      walker_.Fail(NoMemory());
    }
  };
  for (auto& [request, status] : news.fetched) {
    guarded([&, &request = request, &status = status] { walker_.OnFetched(std::move(request), status); });
  }
  for (std::unique_ptr<Walker::Task>& task : news.decoded) guarded([&] { walker_.OnDecoded(std::move(task)); });
  walker_.OnTaken(news.value_bytes);
  if (news.stopping) return false;
  ShareMemory();
  guarded([&] { more = walker_.Advance(news.untaken, has_news_); });
  HandOut(walker_.Take());
  return more;
}

void Engine::ShareMemory() {
  constexpr uint64_t kStep = uint64_t{1} << 20;  // smaller changes are not worth new sizes
  constexpr uint64_t kLeastFetchBytes = 8 * kStep;
  const Fetcher& fetcher = walker_.fetcher();
  item_bytes_.store(fetcher.touched_items(), std::memory_order_relaxed);
  landing_bytes_.store(fetcher.touched_landing(), std::memory_order_relaxed);
  if (share_ == nullptr) return;
  const uint64_t beside = outlet_.ring().made() * plan_.slot_bytes + plan_.account_bytes;
  const uint64_t granted = share_->Grant(beside + fetcher.touched_items() + fetcher.touched_landing());
  const uint64_t left = granted - std::min(granted, beside);
  walker_.SetFetchMemory(left >= plan_.fetch_bytes ? plan_.fetch_bytes
                                                   : std::max(kLeastFetchBytes, left / kStep * kStep));
}

absl::Status Engine::NoMemory() const {
  return absl::ResourceExhaustedError(
      fmt::format("the system refuses memory that the budget of {} allows; choose a smaller one, or end other programs",
                  FormatSize(plan_.options.memory_bytes)));
}

void Engine::HandOut(Walker::Output output) {
  {
    const Lock lock(mutex_);
    for (std::unique_ptr<Walker::Task>& task : output.tasks) {
      tasks_.push_back(std::move(task));
      std::push_heap(tasks_.begin(), tasks_.end(), Later);
    }
    for (Batch& batch : output.batches) outlet_.Put(std::move(batch));
    if (output.end) outlet_.End(*std::move(output.end));
    wait_ = std::move(output.wait);
  }
  for (size_t i = 0; i < output.tasks.size(); ++i) runtime_.cpu().Submit([this] { RunTask(); });
}

// ---- What others say

void Engine::Tell() {
  if (has_news_.exchange(true, std::memory_order_relaxed)) return;
  told_.notify_one();
}

void Engine::Send(std::unique_ptr<Fetcher::Request> request) {
  Fetcher::Request& sent = *request;
  reads_.Get(*sent.store, std::move(sent.key), sent.into, std::move(sent.get), std::move(sent.plan),
             [this, request = std::move(request)](absl::StatusOr<GetResult> result) mutable {
               request->DealOut(result.status());
               const Lock lock(mutex_);
               news_.fetched.emplace_back(std::move(request), result.status());
               if (is_urgent()) Tell();
             });
}

void Engine::RunTask() {
  Lock lock(mutex_);
  std::pop_heap(tasks_.begin(), tasks_.end(), Later);
  std::unique_ptr<Walker::Task> task = std::move(tasks_.back());
  tasks_.pop_back();
  std::unique_ptr<RowDecoder> decoder;
  if (!idle_decoders_.empty()) {
    decoder = std::move(idle_decoders_.back());
    idle_decoders_.pop_back();
  }
  lock.unlock();
  try {
    if (decoder == nullptr) decoder = MakeRowDecoder(plan_, &decode_memory_);
    task->Run(*decoder, stop_.get_token());
  } catch (const std::bad_alloc&) {
    task->rows.assign(task->units.size(), NoMemory());
  }
  lock.lock();
  if (decoder != nullptr) idle_decoders_.push_back(std::move(decoder));
  const bool completes = task->CompletesStep();
  news_.decoded.push_back(std::move(task));
  if (completes || is_urgent()) Tell();
}

// True if the walker must look now. Otherwise there are tasks left, and the last of them will wake it.
bool Engine::is_urgent() const {
  return tasks_.size() < static_cast<size_t>(runtime_.cpu().threads()) ||
         news_.fetched.size() + news_.decoded.size() >= kNewsAtOnce;
}

// ---- The consumer

LoaderReport Engine::report() const {
  LoaderReport report = outlet_.report();
  report.cache = reads_.report();
  report.memory.budget_bytes = share_ != nullptr ? plan_.options.shares->bytes() : plan_.options.memory_bytes;
  report.memory.loaders = share_ != nullptr ? share_->members() : 1;
  report.memory.item_bytes = item_bytes_.load(std::memory_order_relaxed);
  report.memory.landing_bytes = landing_bytes_.load(std::memory_order_relaxed);
  report.memory.account_bytes = plan_.account_bytes;
  return report;
}

uint64_t Engine::samples_per_epoch() const {
  return plan_.bucketed() ? plan_.source.size() : plan_.batching.samples;
}

}  // namespace millrace
