#include "diagnose/data_source.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr double kSmall = 39e3;  // bytes of a file
constexpr double kLarge = 110e6;

SourceQuestion Of(double bytes, double file_bytes) {
  return {.bytes = bytes, .files = static_cast<uint64_t>(bytes / file_bytes)};
}

DataSource Choose(SourceQuestion question) {
  const SourceChoice choice = ChooseSource(question);
  EXPECT_FALSE(choice.steps.empty());
  return choice.source;
}

// The four data sets of the guide, whose small files it did not pack.
TEST(DataSource, FourDataSets) {
  SourceQuestion a = Of(1e9, kSmall);
  a.packable = false;
  EXPECT_EQ(Choose(a), DataSource::kFsx);
  a.several_epochs = true;
  EXPECT_EQ(Choose(a), DataSource::kFile);
  EXPECT_EQ(Choose(Of(1e9, kLarge)), DataSource::kFastFile);
  SourceQuestion c = Of(54e9, kSmall);
  c.packable = false;
  c.several_epochs = true;
  EXPECT_EQ(Choose(c), DataSource::kFsx);
  EXPECT_EQ(Choose(Of(54e9, kLarge)), DataSource::kFastFile);
}

TEST(DataSource, WhatLiesInEfsStaysThere) {
  for (const double file_bytes : {kSmall, kLarge}) {
    SourceQuestion question = Of(54e9, file_bytes);
    question.in_efs = true;
    EXPECT_EQ(Choose(question), DataSource::kEfs);
  }
}

TEST(DataSource, SmallFilesArePacked) {
  EXPECT_EQ(Choose(Of(1e9, kSmall)), DataSource::kPackThenFile);
  EXPECT_EQ(Choose(Of(500e9, kSmall)), DataSource::kPackThenFastFile);
}

TEST(DataSource, RandomReadsOfLargeFiles) {
  SourceQuestion question = Of(54e9, kLarge);
  question.sequential = false;
  EXPECT_EQ(Choose(question), DataSource::kFsx);
  question.heavy_model = true;
  EXPECT_EQ(Choose(question), DataSource::kTryFastFile);
}

TEST(DataSource, NoFiles) {
  EXPECT_EQ(Choose({}), DataSource::kPackThenFile);
}

TEST(DataSource, VcpusOfAccelerators) {
  // These are eight accelerators that need 20 vCPUs each, on 96, and with 144 more of two other machines.
  const VcpuNeed alone = NeedOfVcpus(20, 8, 96);
  EXPECT_EQ(alone.needed, 160);
  EXPECT_EQ(alone.missing, 64);
  EXPECT_DOUBLE_EQ(alone.most_accelerator, 0.6);
  const VcpuNeed helped = NeedOfVcpus(20, 8, 96 + 2 * 72);
  EXPECT_EQ(helped.missing, 0);
  EXPECT_DOUBLE_EQ(helped.most_accelerator, 1);
  EXPECT_EQ(NeedOfVcpus(0, 8, 96).needed, 0);
}

}  // namespace
}  // namespace millrace
