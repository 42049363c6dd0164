#include "mount/look_ahead.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/errno_status.h"
#include "base/file_text.h"
#include "base/log.h"
#include "store/file_system.h"

namespace millrace {

namespace {

constexpr size_t kMaxPasses = 8;
constexpr size_t kMaxFolders = 64;  // whose last file is remembered
constexpr size_t kMaxNeeded = 512;  // files in ascending order before a listing is asked for once more
constexpr size_t kWorthIt = 8;      // files of a pass that make it one
constexpr size_t kMaxMisses = 64;   // until a pass is over
constexpr size_t kLeastFiles = 8;   // of an order, however large they are
constexpr size_t kMostHeld = 8;     // times the files that are read ahead, until requests in flight are cancelled
constexpr uint64_t kWeight = 16;    // of what was before, in an average
// After so many files in a row of which the kernel asks for nothing, it is believed to have the next ones, too.
constexpr int kUnreadInRow = 16;
constexpr std::chrono::milliseconds kLookAtOrder{1000};
// So many files of a pass are opened, or so long a time passes, until the thread looks for the next reads. Many files
// are ahead, and to wake it for each is more work.
constexpr size_t kTogether = 4;
constexpr std::chrono::milliseconds kLookAtPass{50};

std::string FolderOf(const std::string& key) {
  const size_t slash = key.rfind('/');
  return slash == key.npos ? "" : key.substr(0, slash + 1);
}

}  // namespace

LookAhead::LookAhead(ObjectStore& store, BlockTier& tier, const RemoteTree& tree, std::string prefix,
                     AheadLimits limits, std::string order_path, Known known)
    : store_(store),
      tier_(tier),
      tree_(tree),
      prefix_(std::move(prefix)),
      limits_(limits),
      order_path_(std::move(order_path)),
      known_(std::move(known)),
      thread_([this] { Run(); }) {}

LookAhead::~LookAhead() {
  {
    std::lock_guard lock(answers_->mutex);
    answers_->stop = true;
    answers_->changed.notify_all();
  }
  thread_.join();
}

void LookAhead::Wake() {
  std::lock_guard lock(answers_->mutex);
  answers_->wake = true;
  answers_->changed.notify_all();
}

void LookAhead::Run() {
  Wake();  // the first files of an order are read before any is opened
  Lock lock(answers_->mutex);
  while (true) {
    answers_->changed.wait(lock, [this] { return answers_->stop || answers_->wake || !answers_->came.empty(); });
    if (answers_->stop) return;
    answers_->wake = false;
    std::vector<Answer> came = std::exchange(answers_->came, {});
    lock.unlock();
    std::optional<std::string> order = ReadOrder();
    {
      std::lock_guard state(mutex_);
      if (order) TakeOrder(*std::move(order));
      for (Answer& answer : came) Take(std::move(answer));
      Go();
      requests_.generation = generation_;
    }
    Send(std::exchange(requests_, {}));
    lock.lock();
  }
}

void LookAhead::OnOpen(const std::string& key) {
  {
    std::lock_guard lock(mutex_);
    ++opens_;
    std::erase_if(skipped_, [&](const Node& node) { return node.key == key; });
    // It may follow the order of the keys, also if it follows that of the file.
    if (order_) (void)order_->OnOpen(key);
    bool wake = order_ && order_->HasWanted();
    bool followed = false;
    for (const auto& pass : passes_) {
      if (!pass->order.OnOpen(key)) continue;
      pass->used = opens_;
      followed = true;
      const bool begins = pass->order.hits() < kWorthIt;
      if (!begins) needed_ = 1;
      if (!begins && ++pass->unseen < kTogether) continue;
      pass->unseen = 0;
      wake = true;
    }
    if (!followed && Begin(key)) wake = true;
    // The thread also wakes now and then: a listing may be due again, and the file of the order another one.
    const auto now = std::chrono::steady_clock::now();
    if (!wake && now - woken_ < (followed ? kLookAtPass : kLookAtOrder)) return;
    woken_ = now;
  }
  Wake();
}

void LookAhead::OnRead() {
  // This is called often, and the number is seldom anything else than 0.
  if (unread_in_row_.load() == 0) return;
  if (unread_in_row_.exchange(0) >= kUnreadInRow) Wake();
}

void LookAhead::OnUnread() {
  if (unread_in_row_.load() < kUnreadInRow) ++unread_in_row_;
}

// Returns true if a pass over files begins here: they come in the order of their keys. By chance that is true of every
// other file. So a pass that comes to nothing makes the next one wait longer.
bool LookAhead::Begin(const std::string& key) {
  const std::string folder = FolderOf(key);
  const auto last = std::find_if(last_.begin(), last_.end(), [&](const auto& entry) { return entry.first == folder; });
  const bool ascends = last != last_.end() ? last->second < key : !last_.empty() && last_.back().second < key;
  if (last != last_.end()) last_.erase(last);
  last_.emplace_back(folder, key);
  if (last_.size() > kMaxFolders) last_.pop_front();
  if (!ascends || ++evidence_ < needed_) return false;
  evidence_ = 0;
  std::erase_if(passes_, [this](const auto& pass) {
    const bool over = pass->order.misses() >= kMaxMisses;
    if (over && pass->order.hits() < kWorthIt) needed_ = std::min(kMaxNeeded, needed_ * 2);
    return over;
  });
  if (passes_.size() >= kMaxPasses) {
    const auto oldest = std::min_element(passes_.begin(), passes_.end(),
                                         [](const auto& a, const auto& b) { return a->used < b->used; });
    if ((*oldest)->order.hits() < kWorthIt) needed_ = std::min(kMaxNeeded, needed_ * 2);
    passes_.erase(oldest);
  }
  passes_.push_back(std::make_unique<Pass>(Pass{next_id_++, KeyOrder(key, limits_), opens_}));
  return true;
}

std::optional<Node> LookAhead::FindLocked(const std::string& key) const {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& pass : passes_) {
    if (std::optional<Node> node = pass->order.Find(key, now)) return node;
  }
  const auto named = named_.find(key);
  if (named == named_.end() || named->second.fresh_until <= now) return std::nullopt;
  return named->second;
}

std::optional<Node> LookAhead::Find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  return FindLocked(key);
}

void LookAhead::Forget(const std::string& key) {
  std::lock_guard lock(mutex_);
  ++generation_;
  std::erase_if(skipped_, [&](const Node& node) { return node.key == key; });
  for (const auto& pass : passes_) pass->order.Forget(key);
  named_.erase(key);
}

void LookAhead::Take(Answer answer) {
  const auto now = std::chrono::steady_clock::now();
  if (answer.pass == 0) {
    if (!answer.info.ok() || answer.generation != generation_) return;
    const Node node = tree_.FileNode(*answer.info, answer.key);
    Name(node);
    Read(node);
    return;
  }
  const auto pass =
      std::find_if(passes_.begin(), passes_.end(), [&](const auto& one) { return one->id == answer.pass; });
  if (pass == passes_.end()) return;
  if (!answer.page.ok() || answer.generation != generation_) return (*pass)->order.OnFailure(now);
  std::vector<Node> files;
  for (const ObjectInfo& info : answer.page->objects) {
    if (info.key.back() != '/') files.push_back(tree_.FileNode(info, info.key));
  }
  (*pass)->order.OnPage(files, answer.page->continuation.empty(), now);
}

// Begins what is to be done now.
void LookAhead::Go() {
  const auto now = std::chrono::steady_clock::now();
  if (!skipped_.empty() && unread_in_row_.load() < kUnreadInRow) {
    for (const Node& node : std::exchange(skipped_, {})) Read(node);
  }
  for (const auto& pass : passes_) {
    if (std::optional<std::string> after = pass->order.NextPage(now)) {
      requests_.pages.push_back({pass->id, *std::move(after)});
    }
    for (const Node& node : pass->order.TakeWanted()) Read(node);
  }
  if (!order_) return;
  for (;;) {
    // Only a few are read until it is known how large they are.
    const uint64_t most = average_bytes_ == 0 ? 0 : limits_.bytes / average_bytes_;
    order_->set_files(std::clamp<uint64_t>(most, std::min(kLeastFiles, limits_.files), limits_.files));
    const std::vector<std::string> wanted = order_->TakeWanted();
    if (wanted.empty()) return;
    for (const std::string& key : wanted) ReadNamed(key);
  }
}

void LookAhead::ReadNamed(const std::string& key) {
  std::optional<Node> node = FindLocked(key);
  if (!node && known_) node = known_(key);
  if (!node) return requests_.keys.push_back(key);
  Name(*node);  // the pass that knows it may end before it is opened
  Read(*node);
}

// Reads the file of the order if it is a new one. It may be large, so the caller does not hold the mutex.
std::optional<std::string> LookAhead::ReadOrder() {
  const auto now = std::chrono::steady_clock::now();
  if (order_path_.empty() || now - order_looked_ < kLookAtOrder) return std::nullopt;
  order_looked_ = now;
  struct stat info {};
  if (stat(order_path_.c_str(), &info) != 0) return std::nullopt;  // it was there: the one that was read goes on
  std::string version = FileEtag(info);
  if (version == order_version_) return std::nullopt;
  order_version_ = std::move(version);
  if (static_cast<uint64_t>(info.st_size) > kMaxOrderBytes) {
    Log(LogLevel::kWarning, "mount", fmt::format("{}: is larger than 1 GiB, and not read", order_path_));
    return std::nullopt;
  }
  return ReadFileText(order_path_).value_or("");
}

void LookAhead::TakeOrder(std::string text) {
  order_.reset();
  order_text_ = std::make_unique<std::string>(std::move(text));
  order_.emplace(*order_text_, prefix_, limits_.files);
}

void LookAhead::Send(Requests requests) {
  for (const Requests::Page& page : requests.pages) {
    ListOptions options;
    options.prefix = prefix_;
    options.start_after = page.after;
    store_.List(std::move(options), [answers = answers_, id = page.pass,
                                     generation = requests.generation](absl::StatusOr<ListPage> listed) {
      std::lock_guard lock(answers->mutex);
      answers->came.push_back({id, generation, {}, std::move(listed), absl::UnknownError("")});
      answers->changed.notify_all();
    });
  }
  for (const std::string& key : requests.keys) {
    store_.Head(key, {}, [answers = answers_, key, generation = requests.generation](absl::StatusOr<ObjectInfo> info) {
      std::lock_guard lock(answers->mutex);
      answers->came.push_back({0, generation, key, absl::UnknownError(""), std::move(info)});
      answers->changed.notify_all();
    });
  }
  for (const Node& node : requests.files) Fetch(node);
}

void LookAhead::Name(const Node& node) {
  if (named_.insert_or_assign(node.key, node).second) named_turns_.push_back(node.key);
  if (named_turns_.size() > 4 * limits_.files) {
    named_.erase(named_turns_.front());
    named_turns_.pop_front();
  }
}

void LookAhead::Read(const Node& node) {
  if (node.size == 0) return;
  const uint64_t bytes = std::min(node.size, BlockTier::kBlock);
  average_bytes_ = average_bytes_ == 0 ? bytes : (average_bytes_ * (kWeight - 1) + bytes) / kWeight;
  if (unread_in_row_.load() < kUnreadInRow) return requests_.files.push_back(node);
  skipped_.push_back(node);
  if (skipped_.size() > limits_.files) skipped_.pop_front();
}

void LookAhead::Fetch(const Node& node) {
  const auto held = [&](const auto& entry) { return entry.first == node.key && !entry.second->failed(); };
  if (std::any_of(holds_.begin(), holds_.end(), held)) return;
  std::shared_ptr<BlockTier::Hold> hold = tier_.Fetch(node, 0, 1, BlockTier::Need::kAhead);
  if (hold == nullptr) return;
  held_bytes_ += hold->range().length;
  holds_.emplace_back(node.key, std::move(hold));
  LetGo();
}

// The oldest ones were opened long ago; they stay in the tier as long as there is room. If they are only a few too
// many, none is cancelled that has not come: small ones may still be wanted, and nobody would ask for them again.
void LookAhead::LetGo() {
  for (auto at = holds_.begin(); at != holds_.end();) {
    const bool far_too_many =
        holds_.size() > kMostHeld * limits_.files || (held_bytes_ > 2 * limits_.bytes && holds_.size() > 1);
    if (!far_too_many && holds_.size() <= 2 * limits_.files) return;
    if (!far_too_many && !at->second->took()) {
      ++at;
      continue;
    }
    held_bytes_ -= at->second->range().length;
    at = holds_.erase(at);
  }
}

}  // namespace millrace
