#include "shard/csv_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Record = std::vector<std::string>;

std::vector<Record> Read(std::string_view text, std::vector<uint64_t>* lines = nullptr) {
  CsvReader reader(text);
  std::vector<Record> records;
  Record cells;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next(&cells);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return records;
    records.push_back(cells);
    if (lines != nullptr) lines->push_back(reader.line());
  }
}

std::string Error(std::string_view text) {
  CsvReader reader(text);
  Record cells;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next(&cells);
    if (!more.ok()) return more.status().ToString();
    if (!*more) return "";
  }
}

TEST(CsvReader, QuotesMayBeText) {
  const std::string_view text = "a,\"b\n1,\"2\"\r\n\"3,4\n";
  EXPECT_EQ(CsvDelimiterOf("\"a;b,c", /*quotes=*/false), ',');
  CsvReader reader(text, ',', /*quotes=*/false);
  for (const Record& right : {Record{"a", "\"b"}, Record{"1", "\"2\""}, Record{"\"3", "4"}}) {
    Record cells;
    const absl::StatusOr<bool> more = reader.Next(&cells);
    ASSERT_TRUE(more.ok() && *more) << more.status();
    EXPECT_EQ(cells, right);
  }
}

TEST(CsvReader, CellsAndLines) {
  EXPECT_THAT(Read("a,b\n1,2\n"), ElementsAre(Record{"a", "b"}, Record{"1", "2"}));
  EXPECT_THAT(Read("a,b\r\n1,2"), ElementsAre(Record{"a", "b"}, Record{"1", "2"}));
  EXPECT_THAT(Read("\xef\xbb\xbf"
                   "a,\n,\n"),
              ElementsAre(Record{"a", ""}, Record{"", ""}));
  EXPECT_THAT(Read("\n\r\na b , c\n\n"), ElementsAre(Record{"a b ", " c"}));
  EXPECT_THAT(Read(""), ElementsAre());
}

TEST(CsvReader, Quotes) {
  EXPECT_THAT(Read("\"a,\"\"b\"\"\",\"\"\n\"1\r\n2\",3\n"), ElementsAre(Record{"a,\"b\"", ""}, Record{"1\r\n2", "3"}));
  std::vector<uint64_t> lines;
  Read("a\n\"b\n\nc\"\nd\n", &lines);
  EXPECT_THAT(lines, ElementsAre(1, 2, 5));
}

// Python's csv module reads it in the same way.
TEST(CsvReader, QuotesThatAreText) {
  EXPECT_THAT(Read("1,x\"y\"\n5\" nail, \"b\n"), ElementsAre(Record{"1", "x\"y\""}, Record{"5\" nail", " \"b"}));
  EXPECT_THAT(Read("\"1\"x\"y\",2\n\"a\" \r\n"), ElementsAre(Record{"1x\"y\"", "2"}, Record{"a "}));
}

TEST(CsvReader, LinesMayEndWithCr) {
  std::vector<uint64_t> lines;
  EXPECT_THAT(Read("a,b\r1,2\r\r\n\"3\",4", &lines), ElementsAre(Record{"a", "b"}, Record{"1", "2"}, Record{"3", "4"}));
  EXPECT_THAT(lines, ElementsAre(1, 2, 4));
}

TEST(CsvReader, ErrorsHaveLineAndColumn) {
  EXPECT_THAT(Error("a,b\n1,\"2\n3"), HasSubstr("line 2, column 2: a quoted cell that does not end"));
  EXPECT_THAT(Error(std::string(2000, ',')), HasSubstr("line 1, column 1001: more than 1000 columns"));
  EXPECT_THAT(Error(std::string(200'000, 'x')), HasSubstr("too long"));
  EXPECT_THAT(Error('"' + std::string(200'000, 'x') + '"'), HasSubstr("too long"));
}

// Cells may hold anything, as RFC 4180 writes them.
TEST(CsvReader, ReadsWhatIsWritten) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Record> records(1 + rng.Below(4), Record(1 + rng.Below(3)));
    std::string text;
    for (Record& record : records) {
      for (size_t i = 0; i < record.size(); ++i) {
        for (uint64_t left = rng.Below(5); left > 0; --left) record[i].push_back("a,\"\n\r "[rng.Below(6)]);
        const bool quoted = record[i].find_first_of(",\"\n\r") != std::string::npos || record.size() == 1;
        if (i > 0) text += ',';
        if (quoted) text += '"';
        for (const char c : record[i]) text += c == '"' ? "\"\"" : std::string(1, c);
        if (quoted) text += '"';
      }
      text += round % 2 == 0 ? "\n" : "\r\n";
    }
    ASSERT_EQ(Read(text), records) << text;
  }
}

}  // namespace
}  // namespace millrace
