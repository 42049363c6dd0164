#include "s3/span_verifier.h"

#include <algorithm>

#include "base/crypto.h"

namespace millrace {

SpanVerifier::SpanVerifier(std::span<const SpanChecksum> spans, ByteRange range, ByteSpan buffer)
    : spans_(spans), range_(range), buffer_(buffer), verified_(spans.size(), false), begin_(range.offset) {}

void SpanVerifier::Begin(uint64_t offset) {
  begin_ = offset;
  next_ = 0;
  done_ = 0;
  crc_ = 0;
}

void SpanVerifier::Came(uint64_t end) {
  for (; next_ < spans_.size(); ++next_, done_ = 0, crc_ = 0) {
    const ByteRange span = spans_[next_].range;
    const bool looked_at = !verified_[next_] && span.offset >= begin_;
    const ByteRange rest{span.offset + done_, std::min(end, span.end()) - std::min(end, span.offset) - done_};
    if (looked_at && rest.length > 0) {
      crc_ = Crc32c(BytesOf(rest), crc_);
      done_ += rest.length;
    }
    if (span.end() > end) return;
    if (looked_at) verified_[next_] = crc_ == spans_[next_].crc32c;
  }
}

std::vector<ByteRange> SpanVerifier::Damaged() {
  std::vector<ByteRange> damaged;
  for (size_t i = 0; i < spans_.size(); ++i) {
    if (!verified_[i]) verified_[i] = Crc32c(BytesOf(spans_[i].range)) == spans_[i].crc32c;
    if (!verified_[i]) damaged.push_back(spans_[i].range);
  }
  return damaged;
}

void SpanVerifier::Reset() {
  verified_.assign(verified_.size(), false);
}

}  // namespace millrace
