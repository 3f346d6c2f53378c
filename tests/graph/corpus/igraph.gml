Creator "igraph version 1.0.0 Thu Nov 26 15:16:15 2026"
Version 1
graph
[
  directed 1
  node
  [
    id 0
    name "age"
  ]
  node
  [
    id 1
    name "blood pressure"
  ]
  node
  [
    id 2
    name "dose"
  ]
  node
  [
    id 3
    name "stroke"
  ]
  edge
  [
    source 0
    target 1
  ]
  edge
  [
    source 0
    target 2
  ]
  edge
  [
    source 1
    target 3
  ]
  edge
  [
    source 2
    target 3
  ]
]
