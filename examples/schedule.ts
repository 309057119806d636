// A task at its times: declared beside the handler, fired by whichever pod leads.
// prints: every second: 3 reports
// prints: paused: true
import { schedule, startPod, task } from "flotilla";

let reports = 0;
const report = task("report", {}, async ({ input }: { input: { full: boolean } }) => {
  if (input.full) reports++;
});

// Every second, so that there is something to see. Usually: pattern: "0 3 * * *", zone: "Europe/Berlin".
const often = schedule("often", {
  task: report,
  input: { full: true },
  pattern: "* * * * * *",
  missed: "all",
});

await using pod = await startPod({
  store: "sqlite:schedule.db",
  use: [report],
  schedules: [often],
});

while (reports < 3) await new Promise((resolve) => setTimeout(resolve, 50));
console.log(`every second: 3 reports`);

const { state } = await pod.schedules.pause("often");
console.log(`paused: ${state === "paused"}`);
