#include "mount/key_order.h"

#include <algorithm>
#include <utility>

#include "transfer/key_pattern.h"

namespace millrace {

namespace {

// So far behind the front an open is still part of the same pass.
constexpr size_t kBehind = 256;
// A file that is nearer speaks for a program that moves forward; a file that is further away is opened at random.
constexpr std::ptrdiff_t kNear = 64;
constexpr size_t kHitsToBegin = 2;
constexpr size_t kFirstDepth = 8;
// So many files in a row that are far behind, and it is not one that was read between the others.
constexpr size_t kLaggingInRow = 4;
// A listing that is not believed at all still tells what to read.
constexpr std::chrono::nanoseconds kLeastTtl = std::chrono::seconds(1);
constexpr std::chrono::milliseconds kFirstRetry{100};
constexpr int kMaxDoublings = 9;

}  // namespace

KeyOrder::KeyOrder(std::string key, AheadLimits limits) : limits_(limits), front_(std::move(key)), sent_(front_) {}

// Returns how many files it is ahead of the front, as a negative number if it is behind. Counts no further than a
// little beyond kBehind.
std::ptrdiff_t KeyOrder::AheadOfFront(std::map<std::string, Node>::const_iterator file) const {
  constexpr auto kMost = static_cast<std::ptrdiff_t>(kBehind) + 1;
  const bool ahead = file->first > front_;
  auto at = ahead ? files_.upper_bound(front_) : file;
  const auto end = ahead ? file : files_.upper_bound(front_);
  std::ptrdiff_t count = ahead ? 1 : 0;
  for (; at != end && count < kMost; ++at) ++count;
  return ahead ? count : -count;
}

bool KeyOrder::OnOpen(const std::string& key) {
  if (key == front_) return true;
  const auto file = files_.find(key);
  if (file == files_.end()) {
    if (files_.empty() && listing_ && key > front_) {  // the program does not wait for the first page
      front_ = sent_ = key;
      return true;
    }
    ++misses_;
    return false;
  }
  misses_ = 0;
  const std::ptrdiff_t ahead = AheadOfFront(file);
  if (ahead <= kNear && ahead >= -kNear) ++hits_;
  if (ahead > kNear) hits_ = 0;
  if (ahead > 0) {
    front_ = key;
    sent_ = std::max(sent_, front_);
    lagging_ = 0;
    Trim();
  } else if (BeginsAgain(static_cast<size_t>(-ahead))) {
    front_ = sent_ = key;
    hits_ = 0;
  }
  return true;
}

// Returns true if a file behind the front is one of another pass over the same files.
bool KeyOrder::BeginsAgain(size_t behind) {
  const bool at_end = complete_ && files_.upper_bound(front_) == files_.end();
  const size_t far = at_end ? std::min(limits_.files, files_.size() / 2) : kBehind;
  if (behind <= far) {
    lagging_ = 0;
    return false;
  }
  if (++lagging_ < kLaggingInRow) return false;
  lagging_ = 0;
  return true;
}

void KeyOrder::Trim() {
  auto first = files_.lower_bound(front_);
  for (size_t i = 0; i < kBehind && first != files_.begin(); ++i) --first;
  files_.erase(files_.begin(), first);
}

std::optional<std::string> KeyOrder::NextPage(Time now) {
  if (listing_ || now < retry_at_) return std::nullopt;
  const auto ahead = files_.upper_bound(front_);
  const bool old = !files_.empty() && hits_ >= kHitsToBegin && now - oldest_ > std::max(limits_.ttl, kLeastTtl) / 2;
  if (old) {
    again_ = true;
    listing_ = true;
    asked_after_ = front_;
    return front_;
  }
  if (complete_) return std::nullopt;
  // As many as matter: this is asked often, of long listings.
  size_t left = 0;
  for (auto at = ahead; at != files_.end() && left <= 2 * limits_.files; ++at) ++left;
  if (left > 2 * limits_.files) return std::nullopt;
  listing_ = true;
  again_ = false;
  asked_after_ = files_.empty() ? front_ : std::max(front_, files_.rbegin()->first);
  return asked_after_;
}

void KeyOrder::OnPage(const std::vector<Node>& files, bool is_last, Time now) {
  listing_ = false;
  failures_ = 0;
  if (again_) {
    // The newer one counts for all that is ahead; what it does not reach is asked for again.
    files_.erase(files_.upper_bound(front_), files_.end());
    oldest_ = now;
  } else if (files_.upper_bound(front_) == files_.end()) {
    oldest_ = now;
  }
  again_ = false;
  for (const Node& file : files) files_.insert_or_assign(file.key, file);
  // A store that knows no start of a listing, such as a directory bucket, gives the same page each time.
  const bool is_news =
      std::any_of(files.begin(), files.end(), [&](const Node& file) { return file.key > asked_after_; });
  complete_ = is_last || !is_news;
}

void KeyOrder::OnFailure(Time now) {
  listing_ = false;
  again_ = false;
  retry_at_ = now + kFirstRetry * (1 << std::min(failures_, kMaxDoublings));
  ++failures_;
}

std::vector<Node> KeyOrder::TakeWanted() {
  std::vector<Node> wanted;
  if (hits_ < kHitsToBegin) return wanted;
  const size_t depth = std::min(limits_.files, kFirstDepth << std::min<size_t>(hits_ - kHitsToBegin, 10));
  uint64_t bytes = 0;
  size_t count = 0;
  for (auto at = files_.upper_bound(front_); at != files_.end() && count < depth; ++at, ++count) {
    if (IsOwnFile(at->first)) continue;  // which programs do not open
    bytes += std::min(at->second.size, limits_.file_bytes);
    if (bytes > limits_.bytes) break;
    if (at->first <= sent_) continue;
    sent_ = at->first;
    wanted.push_back(at->second);
  }
  return wanted;
}

std::optional<Node> KeyOrder::Find(const std::string& key, Time now) const {
  const auto found = files_.find(key);
  if (found == files_.end() || found->second.fresh_until <= now) return std::nullopt;
  // Whatever would lie in a folder of this name comes before this key.
  const std::string beyond = key + "0";
  const auto below = files_.lower_bound(key + "/");
  if (below == files_.end()) return complete_ ? std::optional(found->second) : std::nullopt;
  if (below->first < beyond) return std::nullopt;
  return found->second;
}

}  // namespace millrace
