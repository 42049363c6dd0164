#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

/// The files of `millrace run --print` are templates in src/job/templates, which are part of the program:
///
///   FillText(JobTemplate("slurm-script.sh"), {{"name", "job-7"}, {"groups", ...}})
///   FillJson(JobTemplate("jobset.json"), {{"name", "job-7"}, {"jobs", jobs}}).dump(2)
///
/// Values are the members of a JSON object. Nothing inside a value is replaced again.

namespace millrace {

using TemplateValues = nlohmann::ordered_json;

/// Returns the text of src/job/templates/NAME. "" if there is no such file.
std::string_view JobTemplate(std::string_view name);

/// Replaces {{NAME}} by a string or a number. {{#NAME}}...{{/NAME}} is repeated for each object of a list; the members
/// of the object come before those of `values`. A name without a value stays as it is.
std::string FillText(std::string_view text, const TemplateValues& values);

/// Fills a JSON text and keeps the order of its members. A string that is only "{{NAME}}" becomes the value, of any
/// type. If such a string is an element of a list and its value is a list, the elements of the value take its place.
/// Other strings are filled as FillText does it. If a name has no value, its element or member is left out. If that
/// member belongs to an object of a list, the whole object is left out.
TemplateValues FillJson(std::string_view text, const TemplateValues& values);

/// Returns the JSON as the text of a file.
std::string JsonFile(const TemplateValues& json);

}  // namespace millrace
