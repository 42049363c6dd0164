#include "cli/bulk_report.h"

#include <gtest/gtest.h>

namespace millrace::cli {
namespace {

TEST(CopiedText, SaysWhatWasNotVerified) {
  BulkReport report;
  report.objects = 200;
  EXPECT_EQ(CopiedText(report, 0), "copied 200 objects");
  report.unverified = 12;
  EXPECT_EQ(CopiedText(report, 0), "copied 200 objects (12 without a checksum to verify)");
  report.read_twice = 3;
  EXPECT_EQ(CopiedText(report, 0),
            "copied 200 objects (12 without a checksum to verify; 3 without a checksum, read twice)");
  report.unverified = 0;
  EXPECT_EQ(CopiedText(report, 0), "copied 200 objects (3 without a checksum, read twice)");
  EXPECT_EQ(CopiedText(report, 1), "copied 200 objects (3 without a checksum, read twice) and the index");
  report.read_twice = 0;
  EXPECT_EQ(CopiedText(report, 2), "copied 200 objects and 2 indexes");
}

}  // namespace
}  // namespace millrace::cli
