#include "shard/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace millrace {

char CsvDelimiterOf(std::string_view text, bool quotes) {
  std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  std::string plain;
  bool quoted = false;
  for (const char c : line) {
    quoted = quotes && quoted != (c == '"');
    if (!quoted) plain += c;
  }
  for (const char delimiter : {',', ';', '\t'}) {
    if (plain.find(delimiter) != std::string::npos) return delimiter;
  }
  return ',';
}

CsvReader::CsvReader(std::string_view text, char delimiter, bool quotes)
    : delimiter_(delimiter),
      quotes_(quotes),
      plain_ends_{delimiter, '\n', '\r', '\0'},
      rest_(WithoutByteOrderMark(text)) {}

absl::Status CsvReader::Wrong(std::string_view what) const {
  return absl::InvalidArgumentError(fmt::format("line {}, column {}: {}", line_, column_, what));
}

void CsvReader::TakeLineEnd() {
  rest_.remove_prefix(rest_.starts_with("\r\n") ? 2 : 1);
  ++next_line_;
}

absl::Status CsvReader::TakeQuoted(std::string* cell) {
  rest_.remove_prefix(1);
  while (true) {
    const size_t quote = rest_.find('"');
    if (quote == std::string_view::npos) {
      return Wrong(
          "a quoted cell that does not end; if quotes are text in this file: --no-csv-quotes, in Python "
          "csv_quotes=False");
    }
    const std::string_view part = rest_.substr(0, quote);
    if (cell->size() + part.size() > kMaxCsvCellBytes) return Wrong("a cell that is too long");
    for (const char c : part) next_line_ += c == '\n' ? 1 : 0;
    cell->append(part);
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    cell->push_back('"');
    rest_.remove_prefix(1);
  }
  return TakePlain(cell);
}

absl::Status CsvReader::TakePlain(std::string* cell) {
  const size_t end = std::min(rest_.find_first_of(plain_ends_), rest_.size());
  if (cell->size() + end > kMaxCsvCellBytes) return Wrong("a cell that is too long");
  cell->append(rest_.substr(0, end));
  rest_.remove_prefix(end);
  return absl::OkStatus();
}

absl::StatusOr<bool> CsvReader::Next(std::vector<std::string>* cells) {
  while (!rest_.empty() && AtLineEnd()) TakeLineEnd();
  cells->clear();
  line_ = next_line_;
  column_ = 0;
  if (rest_.empty()) return false;
  while (true) {
    ++column_;
    if (column_ > kMaxCsvCells) return Wrong(fmt::format("more than {} columns", kMaxCsvCells));
    std::string& cell = cells->emplace_back();
    RETURN_IF_ERROR(quotes_ && rest_.starts_with('"') ? TakeQuoted(&cell) : TakePlain(&cell));
    if (rest_.empty()) return true;
    if (AtLineEnd()) {
      TakeLineEnd();
      return true;
    }
    rest_.remove_prefix(1);  // the delimiter
  }
}

}  // namespace millrace
