// A server reads these from strangers. Chunked bodies decode the same however they arrive. Ranges stay within the
// object, and buckets within the root. A rule that parses can be matched.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "devstore/auth.h"
#include "devstore/aws_chunked.h"
#include "devstore/conditions.h"
#include "devstore/faults.h"
#include "devstore/listing.h"
#include "devstore/operations.h"
#include "devstore/s3_request.h"
#include "devstore/sidecar.h"

namespace millrace {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Decoded {
  bool ok = true;
  std::string body;
};

Decoded Decode(std::string_view input, size_t step, bool trailer) {
  AwsChunkedDecoder decoder(std::nullopt, trailer);
  Decoded out;
  for (; !input.empty() && out.ok; input.remove_prefix(std::min(step, input.size()))) {
    out.ok = decoder
                 .Update(AsBytes(input.substr(0, step)),
                         [&out](ByteSpan bytes) {
                           out.body += AsText(bytes);
                           return absl::OkStatus();
                         })
                 .ok();
  }
  out.ok = out.ok && decoder.Finish().ok();
  return out;
}

void TryRequest(std::string_view target, std::string_view header) {
  HttpRequestHead head{"GET", std::string(target), {}};
  head.headers.Add("Host", "127.0.0.1");
  head.headers.Add("Authorization", std::string(header));
  const auto request = ParseS3Request(std::move(head));
  if (!request.ok()) return;
  Require(request->bucket.empty() || MayNameBucket(request->bucket));
  FindOperation(*request).status().IgnoreError();
  const AuthSettings settings{{"key", "secret", ""}, "us-east-1", false};
  Require(!Authenticate(*request, settings, absl::FromUnixSeconds(1369353600)).ok());
}

void TryRange(std::string_view header, uint64_t object_size) {
  const RangeRequest range = ParseRange(header, object_size);
  if (range.kind != RangeKind::kPart) return;
  Require(range.range.length > 0 && range.range.offset < object_size);
  Require(range.range.length <= object_size - range.range.offset);
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const bool trailer : {false, true}) {
    const Decoded whole = Decode(input, size + 1, trailer);
    const Decoded bytewise = Decode(input, 1, trailer);
    Require(whole.ok == bytewise.ok && (!whole.ok || whole.body == bytewise.body));
  }
  const std::string_view first = input.substr(0, input.find('\n'));
  TryRequest(first, input.substr(std::min(size, first.size() + 1)));
  for (const uint64_t object_size : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, UINT64_MAX})
    TryRange(first, object_size);
  if (const auto rule = ParseFaultRule(first); rule.ok()) MatchesKey(*rule, input);
  DecodeObject(input, {});
  if (const auto from = DecodeContinuation(first)) Require(DecodeContinuation(EncodeContinuation(*from)) == *from);
  return 0;
}
