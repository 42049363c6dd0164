#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

inline constexpr size_t kMaxCsvCells = 1000;            // of a record
inline constexpr size_t kMaxCsvCellBytes = 128 * 1024;  // of a cell, without its quotes

/// Returns the delimiter of the cells of a text in CSV, by its first line. It is a comma if there is one outside of
/// quotes, else a semicolon, else a tab, else a comma.
char CsvDelimiterOf(std::string_view text, bool quotes = true);

/// Takes the records of a text in CSV as Python's csv module does. Cells are between delimiters; quoted ones may hold
/// delimiters, line ends and doubled quotes. Lines end with LF, CRLF or CR. A quote is text if it does not begin a
/// cell, and so is the rest of a cell after its quotes. Without `quotes`, all of them are text, as with csv.QUOTE_NONE.
/// A byte order mark and empty lines are passed over. Pure.
class CsvReader {
 public:
  /// `text` must live as long.
  explicit CsvReader(std::string_view text, char delimiter = ',', bool quotes = true);

  /// Puts the cells of the next record into `cells`; false after the last. InvalidArgument, with line and column: a
  /// quoted cell that does not end, too many cells, or one that is too long. After an error it must not be used.
  absl::StatusOr<bool> Next(std::vector<std::string>* cells);

  /// Returns the line at which the latest record begins, from 1.
  uint64_t line() const { return line_; }

 private:
  absl::Status TakeQuoted(std::string* cell);
  absl::Status TakePlain(std::string* cell);
  absl::Status Wrong(std::string_view what) const;
  bool AtLineEnd() const { return rest_.starts_with('\n') || rest_.starts_with('\r'); }
  void TakeLineEnd();

  const char delimiter_;
  const bool quotes_;
  const char plain_ends_[4];  // a plain cell: the delimiter, the line's ends, NUL
  std::string_view rest_;
  uint64_t next_line_ = 1;  // of rest_
  uint64_t line_ = 0;
  size_t column_ = 0;  // of the cell in hand, from 1
};

}  // namespace millrace
