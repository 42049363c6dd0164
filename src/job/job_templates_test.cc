#include "job/job_templates.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(FillText, ReplacesTextsAndNumbersAndKeepsTheRest) {
  EXPECT_EQ(FillText("a {{x}}{{y}} ${z} {", {{"x", "1"}, {"y", 2}}), "a 12 ${z} {");
  EXPECT_EQ(FillText("", {{"x", "1"}}), "");
}

TEST(FillText, DoesNotReplaceInsideAValue) {
  EXPECT_EQ(FillText("{{x}}", {{"x", "{{y}}"}, {"y", "no"}}), "{{y}}");
}

TEST(FillText, ShowsANameWithoutAValue) {
  EXPECT_EQ(FillText("{{x}} {{#y}}{{/y}} {{", {{"z", ""}}), "{{x}} {{#y}}{{/y}} {{");
}

TEST(FillText, RepeatsForEachObjectOfAList) {
  const TemplateValues none = TemplateValues::array();
  const TemplateValues items = {{{"n", 1}, {"inner", none}}, {{"n", 2}, {"inner", {{{"m", "!"}}}}}};
  const TemplateValues values = {{"items", items}, {"outer", "o"}, {"n", 0}, {"none", none}};
  EXPECT_EQ(FillText("<{{#items}}{{outer}}{{n}}{{#inner}}{{m}}{{/inner}} {{/items}}{{n}}>{{#none}}x{{/none}}", values),
            "<o1 o2! 0>");
}

TEST(FillJson, KeepsTheOrderAndTypesOfValues) {
  const TemplateValues filled =
      FillJson(R"({"b": "{{x}}", "a": {"c": "is {{x}}"}, "n": "{{n}}"})", {{"x", "X"}, {"n", 3}});
  EXPECT_EQ(filled.dump(), R"({"b":"X","a":{"c":"is X"},"n":3})");
}

TEST(FillJson, PutsTheElementsOfAListInThePlaceOfAnElement) {
  const TemplateValues values = {{"more", {"b", "c"}}, {"whole", {1, 2}}};
  EXPECT_EQ(FillJson(R"({"l": ["a", "{{more}}", "d"], "w": "{{whole}}"})", values).dump(),
            R"({"l":["a","b","c","d"],"w":[1,2]})");
}

TEST(FillJson, LeavesOutWhatHasNoValue) {
  const TemplateValues values = {{"x", "X"}};
  EXPECT_EQ(FillJson(R"({"a": "{{x}}", "b": "{{y}}"})", values).dump(), R"({"a":"X"})");
  EXPECT_EQ(FillJson(R"({"l": [{"a": "{{x}}", "b": "{{y}}"}, {"a": "{{x}}"}, "{{y}}"]})", values).dump(),
            R"({"l":[{"a":"X"}]})");
}

TEST(JobTemplate, TemplatesArePartOfTheProgram) {
  for (const char* name : {"iam-policy.json", "iam-policy-volumes.json", "jobset.json", "jobset-job.json",
                           "spot-fleet.json", "spot-fleet-launch.json"}) {
    EXPECT_FALSE(TemplateValues::parse(JobTemplate(name), nullptr, false).is_discarded()) << name;
  }
  EXPECT_TRUE(JobTemplate("user-data.sh").starts_with("#!/bin/bash\n"));
  EXPECT_TRUE(JobTemplate("slurm-script.sh").starts_with("#!/usr/bin/env bash\n"));
  EXPECT_EQ(JobTemplate("other"), "");
}

}  // namespace
}  // namespace millrace
