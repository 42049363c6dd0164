#include "shard/testing/tar_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/tar_format.h"

namespace millrace::testing {

std::string Header(const RawHeader& raw) {
  std::string block(kTarBlock, '\0');
  block.replace(0, raw.name.size(), raw.name);
  block.replace(100, 7, "0000644");
  block.replace(124, raw.size.size(), raw.size);
  block[156] = raw.type;
  block.replace(257, raw.magic.size(), raw.magic);
  block.replace(345, raw.prefix.size(), raw.prefix);
  block.replace(148, 8, "        ");
  int64_t sum = 0;
  for (const char c : block) sum += raw.signed_checksum ? static_cast<signed char>(c) : static_cast<unsigned char>(c);
  block.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return block;
}

std::string Octal(uint64_t size) {
  return fmt::format("{:011o}", size);
}

std::string Member(std::string_view name, std::string_view data, char type) {
  std::string member = Header({.name = std::string(name), .size = Octal(data.size()), .type = type});
  member.append(data);
  member.resize(TarPadded(member.size()), '\0');
  return member;
}

std::string Pax(const std::vector<std::string>& records, char type) {
  std::string data;
  for (const std::string& record : records) {
    size_t length = record.size() + 3;
    while (fmt::formatted_size("{}", length) + record.size() + 2 != length) ++length;
    data += fmt::format("{} {}\n", length, record);
  }
  return Member("PaxHeaders/x", data, type);
}

std::string End() {
  return std::string(2 * kTarBlock, '\0');
}

absl::StatusOr<std::vector<TarMember>> ReadMembers(std::string_view archive, size_t chunk) {
  if (chunk == 0) chunk = archive.size() + 1;
  TarReader reader;
  std::vector<TarMember> members;
  while (reader.position() < archive.size()) {
    ASSIGN_OR_RETURN(const TarReader::Event event, reader.Advance(AsBytes(archive.substr(reader.position(), chunk))));
    if (event == TarReader::Event::kMember) members.push_back(reader.member());
  }
  RETURN_IF_ERROR(reader.Finish(archive.size()));
  return members;
}

std::string WdsIndexOf(std::string_view archive) {
  std::string lines;
  std::string last;
  int samples = 0;
  const auto members = ReadMembers(archive);
  for (const TarMember& member : *members) {
    if (!member.regular) continue;
    const size_t dot = member.name.find('.', member.name.rfind('/') + 1);
    const std::string base = member.name.substr(0, dot);
    if (base.empty() || base.ends_with('/')) continue;
    if (base == last) {
      lines.back() = ' ';
    } else {
      ++samples;
    }
    last = base;
    lines += fmt::format("{} {} {} {}\n", member.name.substr(dot + 1), member.data_offset, member.size, member.name);
  }
  return fmt::format("v1.2 {}\n{}", samples, lines);
}

}  // namespace millrace::testing
