#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/byte_gatherer.h"
#include "shard/number_type.h"

/// Token files are objects that hold nothing but numbers of one type, little-endian, or these after the head of an .npy
/// file. The ends of their samples are given by an .idx beside them (Megatron), or by the user (TokenArrays). Pure.

namespace millrace {

/// This is the one field of their samples: an array with one axis.
inline constexpr std::string_view kTokensField = "tokens";

/// Says how plain arrays are cut into samples: of `length` tokens each, the last one of an array maybe less.
struct TokenArrays {
  uint64_t length = 0;
  std::optional<NumberType> type;  // of .bin files, which do not say it; of .npy files, too, where it is given

  friend bool operator==(const TokenArrays&, const TokenArrays&) = default;
};

/// Parses "2048" or "1024:uint16". Returns InvalidArgument if the text is not valid or no sample can have that length.
absl::StatusOr<TokenArrays> ParseTokenArrays(std::string_view text);
std::string ToString(const TokenArrays& arrays);

/// An array of that type is one of them; if their type was not known, it becomes that one. Returns InvalidArgument when
/// it is another.
absl::Status AgreeOnType(TokenArrays* arrays, NumberType type);

/// Returns whether an object of that name is a plain array if such are asked for: *.bin, *.npy.
bool IsTokenArray(std::string_view key);
bool IsNpy(std::string_view key);

// ---- Pairs of Megatron: X.bin holds the tokens, and X.idx says where its sequences end. An .idx begins with the
// magic, u64 version, u8 code of the type, u64 sequences and u64 documents. Then come i32 tokens of each sequence, i64
// offset of each in X.bin, and i64 first sequences of the documents, and their end. A byte for each sequence, its mode,
// may follow.

inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
inline constexpr size_t kMegatronHeadBytes = 34;

bool IsMegatronBin(std::string_view key);  // *.bin
bool IsMegatronIdx(std::string_view key);  // *.idx
/// Turns "a/b.bin" into "a/b.idx", and back.
std::string IdxOfBin(std::string_view bin_key);
std::string BinOfIdx(std::string_view idx_key);

/// Describes the samples of a .bin, one after the other.
struct TokenSequences {
  NumberType type;
  std::vector<uint32_t> lengths;  // in tokens
  uint64_t bytes = 0;             // of all, which is the size of the .bin
};

/// Parses an .idx that comes in chunks, and checks all that it says: sequences must follow one another from the
/// start of the .bin, as Megatron writes them. Documents and modes are checked, and not kept. Errors start with the
/// offset: DataLoss where it is damaged or cut short, InvalidArgument where it is another file or version; then the
/// parser must not be used any more. Not thread-safe.
class MegatronIdxParser {
 public:
  /// `idx_bytes` is the size of the .idx.
  explicit MegatronIdxParser(uint64_t idx_bytes) : idx_bytes_(idx_bytes) {}

  /// Takes the next bytes, in order, in chunks of any size.
  absl::Status Feed(ByteSpan chunk);

  /// Call this after the last byte.
  absl::StatusOr<TokenSequences> Finish();

  /// Returns the most bytes that the sequences of an .idx of that size take.
  static uint64_t MemoryBytes(uint64_t idx_bytes) { return idx_bytes / 3; }

 private:
  enum class Part : uint8_t { kHead, kLengths, kOffsets, kDocuments, kModes, kEnd };

  absl::Status Read(uint64_t offset, ByteSpan bytes);
  absl::Status ReadHead(ByteSpan head);
  absl::Status ReadLengths(uint64_t offset, ByteSpan numbers);
  absl::Status ReadOffsets(uint64_t offset, ByteSpan numbers);
  absl::Status ReadDocuments(uint64_t offset, ByteSpan numbers);
  uint64_t PartBytes() const;

  const uint64_t idx_bytes_;
  ByteGatherer bytes_;
  Part part_ = Part::kHead;
  uint64_t left_ = kMegatronHeadBytes;  // of the part
  uint64_t sequence_count_ = 0;
  uint64_t document_count_ = 0;
  uint64_t mode_count_ = 0;
  uint64_t next_sequence_ = 0;  // whose offset comes next
  uint64_t next_offset_ = 0;    // what it must be
  uint64_t last_document_ = 0;
  TokenSequences sequences_;
};

}  // namespace millrace
