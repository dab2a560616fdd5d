// A client's program with the types that openapi-typescript makes of the document. It is compiled and never run.
import type { components, operations, paths } from "./api";

type Answer<Operation extends { responses: object }, Status extends keyof Operation["responses"]> =
  Operation["responses"][Status] extends { content: { "application/json": infer Body } } ? Body : never;

export function slugs(caller: Answer<operations["whoami"], 200>): string[] {
  return caller.workspaces.filter((workspace) => workspace.role !== "viewer").map((workspace) => workspace.slug);
}

export function following(page: Answer<operations["listFileActivity"], 200>): string | null {
  return page.nextCursor;
}

export function describe(row: components["schemas"]["ActivityRow"]): string {
  switch (row.event.kind) {
    case "rename":
      return `${row.event.fromPath} became ${row.event.path}`;
    case "restore":
      return "the drive was restored";
    default:
      return `${row.event.kind}: ${row.event.path}`;
  }
}

export const created: paths["/v1/workspaces"]["post"]["requestBody"]["content"]["application/json"] = {
  slug: "acme",
  name: "Acme",
};

// @ts-expect-error: the role of an invitation is editor or viewer
export const refused: components["schemas"]["Invitation"]["role"] = "owner";
