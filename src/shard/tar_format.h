#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

/// These are numbers of the tar format that reader and writer share.

namespace millrace {

inline constexpr uint64_t kTarBlock = 512;

/// Offsets beyond this are refused, so that sums of a checked offset and a block never overflow.
inline constexpr uint64_t kTarMaxOffset = uint64_t{1} << 62;

constexpr uint64_t TarPadded(uint64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

/// Says where a field is in a header block.
struct TarFieldAt {
  size_t offset;
  size_t length;
};

inline constexpr TarFieldAt kTarName{0, 100};
inline constexpr TarFieldAt kTarMode{100, 8};
inline constexpr TarFieldAt kTarUid{108, 8};
inline constexpr TarFieldAt kTarGid{116, 8};
inline constexpr TarFieldAt kTarSize{124, 12};
inline constexpr TarFieldAt kTarMtime{136, 12};
inline constexpr TarFieldAt kTarChecksum{148, 8};
inline constexpr TarFieldAt kTarType{156, 1};
inline constexpr TarFieldAt kTarMagic{257, 6};
inline constexpr TarFieldAt kTarVersion{263, 2};
inline constexpr TarFieldAt kTarPrefix{345, 155};

inline constexpr std::string_view kUstarMagic{"ustar\0", 6};

/// This is the comment of a global PAX header which says that EscapeTarKey made the keys of all members that follow.
/// Other readers pass over comments; an own keyword would have GNU tar warn.
inline constexpr std::string_view kTarCommentKeyword = "comment";
inline constexpr std::string_view kTarEscapedKeys = "millrace: %2E in a name is a dot of the key";

constexpr std::string_view TarField(std::string_view header, TarFieldAt at) {
  return header.substr(at.offset, at.length);
}

}  // namespace millrace
