#include "net/http_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

absl::StatusOr<ParsedResponse> Parse(std::string_view head, bool to_head = false) {
  return ParseHttpResponseHead(head, to_head);
}

TEST(HttpHeadEnd, IsFoundHoweverTheBytesArrive) {
  const std::string text = "HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n";
  const size_t expected = text.find("body");
  for (size_t first = 0; first < text.size(); ++first) {
    const size_t at_first = FindHttpHeadEnd(text.substr(0, first), 0);
    EXPECT_EQ(at_first, first >= expected ? expected : 0) << first;
    if (at_first == 0) {
      EXPECT_EQ(FindHttpHeadEnd(text, first), expected) << first;
    }
  }
}

TEST(HttpResponseHead, AnOrdinaryOne) {
  const auto response = Parse(
      "HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\nContent-Range: bytes 0-9/100\r\nETag: "
      "\"abc\"\r\nX-Empty:\r\n\r\n");
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->head.status, 206);
  EXPECT_EQ(response->head.reason, "Partial Content");
  EXPECT_EQ(response->head.content_length, 10u);
  EXPECT_EQ(response->framing, HttpBodyFraming::kLength);
  EXPECT_TRUE(response->keep_alive);
  EXPECT_FALSE(response->interim());
  EXPECT_EQ(response->head.headers.Find("etag"), "\"abc\"");
  EXPECT_EQ(response->head.headers.Find("x-empty"), "");
  EXPECT_EQ(response->head.headers.Find("absent"), std::nullopt);
}

// A field about the connection leaves a head to Beast, which must find in it what is found without that field.
TEST(HttpResponseHead, UsualHeadsAreReadAsBeastReadsThem) {
  const std::vector<std::string> lines = {"Content-Length: 5",
                                          "content-length:5",
                                          "Content-Length: 05",
                                          "CONTENT-LENGTH:   5  ",
                                          "Content-Length: +5",
                                          "Content-Length: 5 5",
                                          "Content-Length: ",
                                          "Content-Length: 5x",
                                          "Content-Length: -1",
                                          "ETag: \"a b\"",
                                          "X:",
                                          "X: ",
                                          "X: \ty\t",
                                          "X y: z",
                                          "X : z",
                                          ": z",
                                          "no colon",
                                          " X: folded",
                                          "X: a:b:c",
                                          "X: \x7f",
                                          "X: \x80",
                                          "X: a\rb",
                                          "X: a\nb: c",
                                          "x_y-1: z",
                                          "x!#: z",
                                          "Content-Length: 99999999999999999999"};
  std::vector<std::string> heads;
  for (const char* const start : {"HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found", "HTTP/1.1 200 ", "HTTP/1.1 200",
                                  "HTTP/1.1 2000 OK", "HTTP/1.1 20 OK", "HTTP/1.1  200 OK", "HTTP/1.0 200 OK",
                                  "HTTP/1.1 204 None", "HTTP/1.1 099 Low", "HTTP/1.1 600 High"}) {
    for (const std::string& a : lines) {
      heads.push_back(std::string(start) + "\r\n" + a + "\r\n");
      for (const std::string& b : lines) heads.push_back(std::string(start) + "\r\n" + a + "\r\n" + b + "\r\n");
    }
  }
  int usual = 0;
  for (const std::string& head : heads) {
    const auto one = Parse(head + "\r\n");
    const auto other = Parse(head + "Proxy-Connection: x\r\n\r\n");
    ASSERT_EQ(one.ok(), other.ok()) << head << one.status() << other.status();
    if (!one.ok()) continue;
    ++usual;
    EXPECT_EQ(one->head.status, other->head.status) << head;
    EXPECT_EQ(one->head.reason, other->head.reason) << head;
    EXPECT_EQ(one->head.content_length, other->head.content_length) << head;
    EXPECT_EQ(one->framing, other->framing) << head;
    EXPECT_EQ(one->keep_alive, other->keep_alive) << head;
    ASSERT_EQ(one->head.headers.size() + 1, other->head.headers.size()) << head;
    for (size_t i = 0; i < one->head.headers.size(); ++i) {
      EXPECT_EQ(one->head.headers[i], other->head.headers[i]) << head;
    }
  }
  EXPECT_GT(usual, 100);
}

TEST(HttpResponseHead, FramingFollowsTheRfc) {
  const auto framing = [](std::string_view head, bool to_head = false) { return Parse(head, to_head)->framing; };
  EXPECT_EQ(framing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), HttpBodyFraming::kChunked);
  EXPECT_EQ(framing("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), HttpBodyFraming::kLength);
  EXPECT_EQ(framing("HTTP/1.1 200 OK\r\n\r\n"), HttpBodyFraming::kUntilClose);
  EXPECT_EQ(framing("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"), HttpBodyFraming::kNone);
  EXPECT_EQ(framing("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"), HttpBodyFraming::kNone);
  EXPECT_EQ(framing("HTTP/1.1 100 Continue\r\n\r\n"), HttpBodyFraming::kNone);
  EXPECT_EQ(framing("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", /*to_head=*/true), HttpBodyFraming::kNone);
  EXPECT_EQ(framing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", /*to_head=*/true), HttpBodyFraming::kNone);
}

TEST(HttpResponseHead, TheLengthOfAHeadAnswerIsKept) {
  EXPECT_EQ(Parse("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n", true)->head.content_length, 12345u);
}

TEST(HttpResponseHead, KeepAlive) {
  const auto keeps = [](std::string_view head) { return Parse(head)->keep_alive; };
  EXPECT_TRUE(keeps("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_FALSE(keeps("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(keeps("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nconnection: x, Close\r\n\r\n"));
  EXPECT_FALSE(keeps("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_TRUE(keeps("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_FALSE(keeps("HTTP/1.1 200 OK\r\n\r\n"));  // the body ends with the connection
}

TEST(HttpResponseHead, InterimResponses) {
  EXPECT_TRUE(Parse("HTTP/1.1 100 Continue\r\n\r\n")->interim());
  EXPECT_TRUE(Parse("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")->interim());
}

class MalformedHead : public ::testing::TestWithParam<const char*> {};

TEST_P(MalformedHead, IsRefused) {
  EXPECT_EQ(Parse(GetParam()).status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(
    Heads, MalformedHead,
    ::testing::Values("", "\r\n\r\n", "HTTP/1.1 200 OK\r\n", "hello\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n",
                      "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 999 Odd\r\n\r\n", "HTTP/1.1 099 Odd\r\n\r\n",
                      "HTTP/1.1 abc OK\r\n\r\n", "HTTP/1.1200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
                      "HTTP/1.1 200 OK\r\n: no name\r\n\r\n", "HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n",
                      "HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1 2\r\n\r\n",
                      "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
                      "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
                      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 200 OK\nA: b\n\n"));

TEST(HttpResponseHead, AHugeOneIsRefused) {
  const std::string head = "HTTP/1.1 200 OK\r\nA: " + std::string(kMaxHttpHeadBytes, 'x') + "\r\n\r\n";
  EXPECT_EQ(Parse(head).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HttpResponseHead, EveryTruncationIsRefused) {
  const std::string head = "HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\nETag: \"abc\"\r\n\r\n";
  ASSERT_TRUE(Parse(head).ok());
  for (size_t size = 0; size < head.size(); ++size) EXPECT_FALSE(Parse(head.substr(0, size)).ok()) << size;
}

/// Decodes `input` handed over in pieces of `step` bytes.
absl::StatusOr<std::string> Decode(std::string_view input, size_t step, HttpChunkDecoder& decoder) {
  std::string out;
  while (!input.empty() && !decoder.done()) {
    std::string_view piece = input.substr(0, step);
    input.remove_prefix(piece.size());
    while (!piece.empty() && !decoder.done()) {
      const auto got = decoder.Next(piece);
      if (!got.ok()) return got.status();
      if (got->consumed == 0) return absl::InternalError("stuck");
      out += got->data;
      piece.remove_prefix(got->consumed);
    }
  }
  return out;
}

TEST(HttpChunkDecoder, DecodesInPiecesOfAnySize) {
  const std::string text =
      "4\r\nmill\r\n004 \r\nrace\r\nA;name=\"value\"\r\n0123456789\r\n0;x\r\nTrailer: one\r\nOther: two\r\n\r\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    HttpChunkDecoder decoder;
    const auto body = Decode(text, step, decoder);
    ASSERT_TRUE(body.ok()) << body.status() << " at step " << step;
    EXPECT_EQ(*body, "millrace0123456789");
    EXPECT_TRUE(decoder.done());
  }
}

TEST(HttpChunkDecoder, StopsAtTheEndOfTheBody) {
  HttpChunkDecoder decoder;
  const std::string text = "0\r\n\r\nHTTP/1.1";
  const auto piece = decoder.Next(text);
  ASSERT_TRUE(piece.ok());
  EXPECT_TRUE(decoder.done());
  EXPECT_EQ(piece->consumed, 5u);
  EXPECT_EQ(decoder.Next("more")->consumed, 0u);
}

TEST(HttpChunkDecoder, IsNotDoneBeforeTheLastByte) {
  const std::string text = "4\r\nmill\r\n0\r\nA: b\r\n\r\n";
  for (size_t size = 0; size < text.size(); ++size) {
    HttpChunkDecoder decoder;
    ASSERT_TRUE(Decode(text.substr(0, size), size + 1, decoder).ok());
    EXPECT_FALSE(decoder.done()) << size;
  }
}

class MalformedChunks : public ::testing::TestWithParam<std::string> {};

TEST_P(MalformedChunks, AreRefused) {
  for (size_t step : {size_t{1}, GetParam().size()}) {
    HttpChunkDecoder decoder;
    EXPECT_EQ(Decode(GetParam(), step, decoder).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(Bodies, MalformedChunks,
                         ::testing::Values("\r\n", "x\r\n", "-1\r\n", "4mill", "4\nmill\r\n", "4\r\rmill",
                                           "4\r\nmillX\r\n", "4\r\nmill\rX", "4\r\nmill\r\n\r\n",
                                           "1000000000000000\r\n", "0;\n\r\n", "0\r\n\r\r", "0\r\nA\n\r\n",
                                           "0\r\nA\r\r\n", "4;" + std::string(20'000, 'x') + "\r\nmill\r\n0\r\n\r\n",
                                           "0\r\nA: " + std::string(20'000, 'x') + "\r\n\r\n"));

}  // namespace
}  // namespace millrace
