module sherwood/reporter

go 1.21
