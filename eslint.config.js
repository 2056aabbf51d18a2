// Lints the page's scripts and their tests.

import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/.venv*/", "**/node_modules/", "site/", "models/"] },
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2023, sourceType: "module" },
    rules: {
      eqeqeq: "error",
      "no-implicit-globals": "error",
      "no-unused-vars": ["error", { varsIgnorePattern: "^_", argsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": "error",
      // Text of users and models only ever becomes textContent.
      "no-restricted-properties": [
        "error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({ property })),
      ],
    },
  },
  { files: ["playground/**/*.js", "benchmarks/**/*.js"], languageOptions: { globals: globals.browser } },
  {
    files: ["playground/**/*.js"],
    rules: {
      // Scripts own their module and leave the browser's objects as they are.
      "no-restricted-syntax": [
        "error",
        { selector: "AssignmentExpression[left.type='MemberExpression'][left.object.name=/^(globalThis|window)$/]", message: "Do not change browser globals." },
      ],
    },
  },
  { files: ["tests/js/**/*.js", "*.config.js"], languageOptions: { globals: globals.node } },
];
