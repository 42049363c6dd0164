// Response heads and chunked bodies of any bytes: no crash, and the same result however the bytes arrive.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/http_parser.h"

namespace millrace {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Decoded {
  bool ok = true;
  bool done = false;
  std::string body;
};

Decoded Decode(std::string_view input, size_t step) {
  HttpChunkDecoder decoder;
  Decoded out;
  while (!input.empty() && !decoder.done()) {
    std::string_view piece = input.substr(0, step);
    input.remove_prefix(piece.size());
    while (!piece.empty() && !decoder.done()) {
      const auto got = decoder.Next(piece);
      if (!got.ok()) {
        out.ok = false;
        return out;
      }
      Require(got->consumed > 0 && got->consumed <= piece.size());
      out.body += got->data;
      piece.remove_prefix(got->consumed);
    }
  }
  out.done = decoder.done();
  return out;
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = FindHttpHeadEnd(input, 0);
  Require(end <= size);
  const std::string_view head = input.substr(0, end);
  for (const bool to_head : {false, true}) {
    const auto response = ParseHttpResponseHead(head, to_head);
    if (!response.ok()) continue;
    Require(response->head.status >= 100 && response->head.status < 600);
    Require(response->framing != HttpBodyFraming::kLength || response->head.content_length.has_value());
    Require(!to_head || response->framing == HttpBodyFraming::kNone);
  }
  const std::string_view rest = input.substr(end);
  const Decoded whole = Decode(rest, size + 1);
  const Decoded bytewise = Decode(rest, 1);
  Require(whole.ok == bytewise.ok && whole.done == bytewise.done && whole.body == bytewise.body);
  return 0;
}
