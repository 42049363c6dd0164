#include "mount/order_file.h"

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

constexpr uint64_t kNearLines = 4096;  // to either side
constexpr size_t kMaxPatience = 1024;
// The processes that share the files of one pass are nearer to each other.
constexpr uint64_t kFarBehind = 1024;
// A program that keeps to the order does not go further at once, nor are its processes further from each other; another
// one opens files at random.
constexpr uint64_t kFar = 512;
constexpr int kTrusted = 4;
constexpr int kMostTrust = 16;
constexpr int kLostByOne = 4;
// Asked for together: to wake a thread for each is more work.
constexpr uint64_t kSeveral = 16;
// So many files in a row, and it is not one that was read between the others.
constexpr size_t kLagging = 4;

}  // namespace

OrderFile::OrderFile(std::string_view text, std::string prefix, size_t files)
    : text_(text), prefix_(std::move(prefix)), files_(files), trust_(kTrusted) {
  StartAt(0);
}

std::optional<std::string> OrderFile::LineAt(size_t* at) const {
  while (*at < text_.size()) {
    const size_t end = std::min(text_.find('\n', *at), text_.size());
    std::string_view line = text_.substr(*at, end - *at);
    *at = end + 1;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty()) return std::string(line);
  }
  return std::nullopt;
}

void OrderFile::StartAt(size_t offset) {
  near_.clear();
  places_.clear();
  first_ = front_ = sent_ = 0;
  next_ = offset;
  Fill();
}

void OrderFile::Fill() {
  while (first_ + near_.size() < front_ + kNearLines) {
    std::optional<std::string> line = LineAt(&next_);
    if (!line) break;
    places_[*line].push_back(first_ + near_.size());
    near_.push_back(*std::move(line));
  }
  if (near_.size() < 3 * kNearLines) return;
  // Now and then, what is far behind goes.
  const uint64_t keep = front_ > kNearLines ? front_ - kNearLines : 0;
  for (uint64_t number = first_; number < keep; ++number) {
    const auto found = places_.find(near_[number - first_]);
    std::erase(found->second, number);
    if (found->second.empty()) places_.erase(found);
  }
  near_.erase(near_.begin(), near_.begin() + static_cast<std::ptrdiff_t>(keep - first_));
  first_ = keep;
}

bool OrderFile::OnOpen(const std::string& key) {
  if (!key.starts_with(prefix_)) return false;
  const std::string name = key.substr(prefix_.size());
  if (const auto found = places_.find(name); found != places_.end()) {
    misses_ = 0;
    // The first one that is not behind; else it was one that another process has passed.
    const auto ahead = std::lower_bound(found->second.begin(), found->second.end(), front_);
    if (ahead != found->second.end()) {
      Trust(*ahead - front_ <= kFar);
      front_ = *ahead + 1;
      lagging_ = 0;
    } else {
      Trust(front_ - found->second.back() <= kFar);
      if (BeginsAgain(found->second.front())) {
        front_ = sent_ = found->second.front() + 1;
        trust_ = 0;
      }
    }
    sent_ = std::max(sent_, front_);
    Fill();
    return true;
  }
  if (++misses_ < patience_) return false;
  misses_ = 0;
  ++searches_;
  const std::optional<size_t> offset = Search(name);
  patience_ = offset ? 2 : std::min(kMaxPatience, patience_ * 2);
  if (!offset) return false;
  StartAt(*offset);
  front_ = sent_ = 1;
  trust_ = 0;
  Fill();
  return true;
}

void OrderFile::Trust(bool near) {
  trust_ = near ? std::min(kMostTrust, trust_ + 1) : std::max(0, trust_ - kLostByOne);
}

bool OrderFile::follows() const {
  return trust_ >= kTrusted;
}

// Returns true if a place behind the front is one of another pass.
bool OrderFile::BeginsAgain(uint64_t place) {
  const uint64_t lines = first_ + near_.size();
  const bool at_end = next_ >= text_.size() && front_ + files_ >= lines;
  const uint64_t far = at_end ? std::min<uint64_t>(files_, lines / 2) : kFarBehind;
  if (front_ - place <= far) {
    lagging_ = 0;
    return false;
  }
  if (++lagging_ < kLagging) return false;
  lagging_ = 0;
  return true;
}

std::optional<size_t> OrderFile::Search(const std::string& key) const {
  for (size_t at = text_.find(key); at != text_.npos; at = text_.find(key, at + 1)) {
    const size_t end = at + key.size();
    const bool begins = at == 0 || text_[at - 1] == '\n';
    const bool ends = end == text_.size() || text_[end] == '\n' || text_.substr(end, 2) == "\r\n";
    if (begins && ends) return at;
  }
  return std::nullopt;
}

bool OrderFile::HasWanted() const {
  if (!follows()) return false;
  const uint64_t lines = first_ + near_.size();
  const uint64_t until = std::min(front_ + files_, lines);
  return until > sent_ && (until - sent_ >= std::clamp<uint64_t>(files_ / 4, 1, kSeveral) || until == lines);
}

std::vector<std::string> OrderFile::TakeWanted() {
  std::vector<std::string> wanted;
  if (!follows()) return wanted;
  const uint64_t until = std::min(front_ + files_, first_ + near_.size());
  for (; sent_ < until; ++sent_) wanted.push_back(prefix_ + near_[sent_ - first_]);
  return wanted;
}

}  // namespace millrace
