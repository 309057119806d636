import { expect, test } from "vitest";
import { parseSubject } from "../../../series/subject.ts";
import { seriesSubject } from "./subject.ts";

test.each([
  { name: "openai", key: "" },
  { name: "open ai 100 %", key: "gpt 5: large" },
  { name: "%20", key: "" },
])("the subject of the throttle %j is read by the server as it was meant", ({ name, key }) => {
  expect(parseSubject(seriesSubject("throttle", name, key))).toEqual({
    kind: "throttle",
    name,
    ...(key !== "" && { part: key }),
  });
});
