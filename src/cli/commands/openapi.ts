import type { Command } from "commander";
import { version } from "../../runtime/version.ts";
import { print } from "../output.ts";

export function openApiCommand(program: Command): void {
  program
    .command("openapi")
    .description("print the OpenAPI 3.1 document of the HTTP API")
    .option("--json", "print it on one line")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla openapi > openapi.json
  $ npx openapi-typescript openapi.json -o flotilla-api.ts`,
    )
    .action(async ({ json }: { json?: true }) => {
      // Loaded only here, so that other commands start faster.
      const { openApi } = await import("../../server/openapi.ts");
      print(JSON.stringify(openApi({ version: version() }), null, json ? undefined : 2));
    });
}
