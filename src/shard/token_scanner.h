#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shard/byte_gatherer.h"
#include "shard/shard_scanner.h"
#include "shard/token_format.h"

namespace millrace {

/// Cuts a token file into samples of one field, `tokens`; their keys are empty. Memory: the head of an .npy file.
class TokenScanner final : public ShardScanner {
 public:
  /// Scans the .bin of a pair.
  static std::unique_ptr<ShardScanner> OfSequences(TokenSequences sequences);

  /// Scans an array without head, of arrays.type, which is given.
  static std::unique_ptr<ShardScanner> OfBin(const TokenArrays& arrays);

  /// Scans an .npy file. One with two axes has a sample in each row, which must be of arrays.length. Its numbers must
  /// be of arrays.type, which becomes their type if it was not given; `arrays` outlives the scanner.
  static std::unique_ptr<ShardScanner> OfNpy(TokenArrays& arrays);

  absl::Status Feed(ByteSpan chunk, ShardSink sink) override;
  absl::Status Finish(ShardSink sink) override;
  uint64_t held_bytes() const override { return 0; }  // the sequences are the caller's

 private:
  enum class Form : uint8_t { kSequences, kBin, kNpy };
  enum class Head : uint8_t { kVersion, kLength, kDict, kRead };

  explicit TokenScanner(Form form) : form_(form) {}
  void SetType(NumberType type);
  absl::Status FeedHead(ByteSpan* chunk);
  absl::Status ReadHead(ByteSpan bytes);
  absl::Status ReadDict(std::string_view dict);
  bool BeginSample();
  absl::Status Cut(ByteSpan bytes, ShardSink sink);
  absl::Status EndSample(ShardSink sink);

  const Form form_;
  NumberType type_;
  std::string encoding_;

  // These members are of an .npy file.
  TokenArrays* arrays_ = nullptr;
  ByteGatherer head_bytes_;
  Head head_ = Head::kVersion;
  uint64_t head_next_ = 0;  // bytes of the part of the head that comes next

  // These are the samples that are still to come.
  std::vector<uint32_t> sequences_;
  uint64_t length_ = 0;  // of arrays
  uint64_t left_ = 0;    // tokens of an .npy file that are in no sample yet

  uint64_t samples_ = 0;  // handed out
  uint64_t offset_ = 0;   // of the next byte
  bool open_ = false;     // a sample is being read, of which
  uint64_t wanted_ = 0;   //   so many bytes there are, and
  uint64_t got_ = 0;      //   so many have come,
  uint32_t crc_ = 0;      //   with this checksum
  ShardSample sample_;    // reused
};

}  // namespace millrace
