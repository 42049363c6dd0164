#include "shard/tar_writer.h"

#include <fmt/format.h>

#include <optional>

#include "shard/sample_name.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxOctalSize = (uint64_t{1} << 33) - 1;  // eleven digits

struct UstarName {
  std::string_view prefix;
  std::string_view name;
};

// Returns nullopt when the name needs a PAX header.
std::optional<UstarName> FitUstar(std::string_view name) {
  if (name.size() <= kTarName.length) return UstarName{.prefix = {}, .name = name};
  // The last slash that leaves a prefix that fits gives the shortest name. A prefix of no bytes would lose the slash.
  const size_t slash = name.rfind('/', kTarPrefix.length);
  if (slash == std::string_view::npos || slash == 0) return std::nullopt;
  const std::string_view rest = name.substr(slash + 1);
  if (rest.empty() || rest.size() > kTarName.length) return std::nullopt;
  return UstarName{.prefix = name.substr(0, slash), .name = rest};
}

void Put(std::string& block, TarFieldAt at, std::string_view text) {
  block.replace(at.offset, text.size(), text);
}

void AppendBlock(std::string& out, UstarName name, uint64_t size, char type) {
  std::string block(kTarBlock, '\0');
  Put(block, kTarName, name.name);
  Put(block, kTarMode, "0000644");
  Put(block, kTarUid, "0000000");
  Put(block, kTarGid, "0000000");
  Put(block, kTarSize, fmt::format("{:011o}", size));
  Put(block, kTarMtime, "00000000000");
  Put(block, kTarChecksum, "        ");
  block[kTarType.offset] = type;
  Put(block, kTarMagic, kUstarMagic);
  Put(block, kTarVersion, "00");
  Put(block, kTarPrefix, name.prefix);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  Put(block, kTarChecksum, fmt::format("{:06o}", sum));
  block[kTarChecksum.offset + 6] = '\0';
  out.append(block);
}

// Returns "LENGTH KEY=VALUE
// ", where LENGTH counts its own digits.
std::string PaxRecord(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (fmt::formatted_size("{}", length) + rest != length) ++length;
  return fmt::format("{} {}={}\n", length, key, value);
}

std::string PaxRecords(std::string_view name, bool name_fits, uint64_t size) {
  std::string records;
  if (!name_fits) records += PaxRecord("path", name);
  if (size > kMaxOctalSize) records += PaxRecord("size", fmt::format("{}", size));
  return records;
}

absl::Status Check(std::string_view name, uint64_t size) {
  if (name.empty()) return absl::InvalidArgumentError("a tar member needs a name");
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(fmt::format("'{}...': name of {} bytes (at most {} are allowed)",
                                                  name.substr(0, 100), name.size(), kMaxNameBytes));
  }
  if (name.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        fmt::format("'{}': NUL in the name of a tar member", name.substr(0, name.find('\0'))));
  }
  if (size > kTarMaxOffset)
    return absl::InvalidArgumentError(fmt::format("'{}': too large for tar ({} bytes)", name, size));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> TarHeaderBytes(std::string_view name, uint64_t size) {
  RETURN_IF_ERROR(Check(name, size));
  const uint64_t records = PaxRecords(name, FitUstar(name).has_value(), size).size();
  return kTarBlock + (records == 0 ? 0 : kTarBlock + TarPadded(records));
}

absl::Status AppendTarHeader(std::string& out, std::string_view name, uint64_t size) {
  RETURN_IF_ERROR(Check(name, size));
  const std::optional<UstarName> fits = FitUstar(name);
  const std::string records = PaxRecords(name, fits.has_value(), size);
  if (!records.empty()) {
    AppendBlock(out, {.prefix = {}, .name = "PaxHeaders/member"}, records.size(), 'x');
    out.append(records);
    AppendTarPadding(out, records.size());
  }
  // Readers that know no PAX see a cut name and an empty file, and stay in step where they can.
  AppendBlock(out, fits.value_or(UstarName{.prefix = {}, .name = name.substr(0, kTarName.length)}),
              size > kMaxOctalSize ? 0 : size, '0');
  return absl::OkStatus();
}

void AppendTarEscapedKeys(std::string& out) {
  const std::string record = PaxRecord(kTarCommentKeyword, kTarEscapedKeys);
  static_assert(kTarCommentKeyword.size() + kTarEscapedKeys.size() + 5 <= kTarBlock, "one block holds the record");
  AppendBlock(out, {.prefix = {}, .name = "PaxHeaders/keys"}, record.size(), 'g');
  out.append(record);
  AppendTarPadding(out, record.size());
}

void AppendTarPadding(std::string& out, uint64_t size) {
  out.append(TarPadded(size) - size, '\0');
}

void AppendTarEnd(std::string& out) {
  out.append(kTarEndBytes, '\0');
}

}  // namespace millrace
